"""The live agent against hand-written traps."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from eagle_adapters.errors import IntrospectionError
from eagle_adapters.introspect import inspect_model

WIDTH, WORDS = 8, 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.o_proj = nn.Linear(WIDTH, WIDTH)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = Attention()
        self.mlp = nn.Linear(WIDTH, WIDTH)


def layer_list(count=3):
    return nn.ModuleList([Layer() for _ in range(count)])


class Decoder(nn.Module):
    """Embedding, layers, norm."""

    def __init__(self, layers=None, embedding=None):
        super().__init__()
        self.embed_tokens = embedding or nn.Embedding(WORDS, WIDTH)
        self.layers = layer_list() if layers is None else layers
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        hidden = self.embed_tokens(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.norm(hidden)


class CausalLM(nn.Module):
    def __init__(self, decoder=None):
        super().__init__()
        self.model = decoder or Decoder()
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)


class Encoder(nn.Module):
    """A stack without a token embedding, as vision and audio towers are."""

    def __init__(self, name="layers"):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, 2)
        self.position_embedding = nn.Embedding(4, WIDTH)
        setattr(self, name, layer_list(5))
        self.norm = nn.LayerNorm(WIDTH)


class Wrapper(nn.Module):
    """Holds submodules under any names, in the given order."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def paths(anatomy):
    return [link.path for link in anatomy.chain]


def refused(model, code, **kwargs):
    with pytest.raises(IntrospectionError) as caught:
        inspect_model(model, **kwargs)
    assert caught.value.code == code
    assert caught.value.diagnostics[0].next_step
    return str(caught.value)


def test_every_part_is_found_and_says_where():
    model = CausalLM()
    model.model.config = SimpleNamespace(hidden_size=WIDTH)
    anatomy = inspect_model(model)
    assert paths(anatomy) == ["", "model"]
    assert anatomy.decoder.class_name.endswith(":Decoder")
    assert (anatomy.layers.path, anatomy.layers.where) == ("model.layers", "attribute layers")
    assert (anatomy.num_layers.value, anatomy.num_layers.where) == (3, "length of model.layers")
    assert (anatomy.hidden_size.value, anatomy.hidden_size.where) == (WIDTH, "model.config.hidden_size")
    assert anatomy.embedding.path == "model.embed_tokens"
    assert anatomy.embedding.class_name == "torch.nn.modules.sparse:Embedding"
    assert anatomy.head.path == anatomy.logits.path == "lm_head"
    assert anatomy.final_norm.path == "model.norm"
    assert anatomy.capture is None
    assert anatomy.owners == {
        link.class_name: type(m) for link, m in zip(anatomy.chain, [model, model.model], strict=True)
    }
    assert anatomy.as_dict()["chain"][1] == {
        "path": "model",
        "class": anatomy.decoder.class_name,
        "where": "attribute model",
    }


def test_without_a_config_the_width_comes_from_the_embedding():
    anatomy = inspect_model(CausalLM())
    assert anatomy.hidden_size.value == WIDTH
    assert "Embedding" in anatomy.hidden_size.where


@pytest.mark.parametrize(
    "name",
    [
        *("language_model", "model", "text_model", "llm", "thinker", "transformer", "backbone", "decoder"),
        *("text", "gpt_neox", "lm", "base", "zz"),
    ],
)
@pytest.mark.parametrize("inner", [Decoder, CausalLM])
def test_a_decoder_under_any_name_beside_a_vision_tower(name, inner):
    model = Wrapper(vision_tower=Encoder(), mm_projector=nn.Linear(WIDTH, WIDTH), **{name: inner()})
    assert inspect_model(model).decoder.path == (name if inner is Decoder else f"{name}.model")


@pytest.mark.parametrize(
    "decoy", ["visual", "audio_tower", "talker", "draft", "mtp", "code_predictor", "eagle_head", "vision_encoder"]
)
def test_other_stacks_lose_even_with_their_own_embedding_and_head(decoy):
    model = Wrapper(**{decoy: CausalLM(), "model": Decoder(), "lm_head": nn.Linear(WIDTH, WORDS)})
    anatomy = inspect_model(model)
    assert anatomy.decoder.path == "model"
    assert anatomy.head.path == "lm_head"


def test_a_tower_under_a_neutral_name_loses():
    assert inspect_model(Wrapper(stem=Encoder("blocks"), body=CausalLM())).decoder.path == "body.model"


def test_a_draft_inside_the_decoder_that_shares_its_embedding_loses():
    decoder = Decoder()
    decoder.mtp_layers = layer_list(1)
    decoder.extra = Wrapper(layers=layer_list(1))
    decoder.extra.embed_tokens = decoder.embed_tokens
    assert inspect_model(CausalLM(decoder), decoder="model").layers.path == "model.layers"


def test_two_equally_good_answers_are_refused_and_either_can_be_chosen():
    model = Wrapper(first=CausalLM(), second=CausalLM())
    message = refused(model, "EA201")
    assert "first.model.layers" in message
    assert "second.model.layers" in message
    assert "decoder=" in message
    for choice in ("second", "second.model", "second.model.layers"):
        assert inspect_model(model, decoder=choice).decoder.path == "second.model"


def test_the_declared_language_model_decides():
    class Declaring(Wrapper):
        def get_language_model(self):
            return self.second

    assert inspect_model(Declaring(first=CausalLM(), second=CausalLM())).decoder.path == "second.model"


@pytest.mark.parametrize("method", ["get_language_model", "get_decoder"])
@pytest.mark.parametrize("answer", ["self", "self.language_model", "self.language_model.model", "None", "1 / 0"])
def test_whatever_the_declaring_method_gives(method, answer):
    class Declaring(Wrapper):
        pass

    setattr(Declaring, method, eval(f"lambda self: {answer}"))
    model = Declaring(visual=Encoder(), language_model=CausalLM())
    assert inspect_model(model).decoder.path == "language_model.model"


def test_missing_language_model_is_never_replaced_by_a_tower():
    message = refused(Wrapper(vision_tower=Encoder(), language_model=None, lm_head=nn.Linear(WIDTH, WORDS)), "EA202")
    assert "vision_tower.layers" in message
    refused(Wrapper(stem=Encoder(), lm_head=nn.Linear(WIDTH, WORDS)), "EA202")
    refused(nn.Linear(2, 2), "EA202")
    refused(object(), "EA202")


@pytest.mark.parametrize(
    "choice", ["nothing", "model.norm", "model.layers.0", "model.layers.x", "model.forward", "..x"]
)
def test_a_bad_choice_is_refused_with_the_good_ones(choice):
    assert "'model'" in refused(CausalLM(), "EA203", decoder=choice)


def test_a_tower_can_be_chosen_on_purpose():
    model = Wrapper(vision_tower=Encoder(), language_model=CausalLM())
    assert inspect_model(model, decoder="vision_tower").num_layers.value == 5


def test_alias_property_with_guarding_setattr():
    class Guarded(nn.Module):
        """As sglang 0.5.23, models/kimi_k25.py: `.model` is `language_model`, and nothing may be set under it."""

        def __init__(self):
            super().__init__()
            self.vision_tower = Encoder()
            self.language_model = CausalLM()

        @property
        def model(self):
            return self.language_model

        def __setattr__(self, name, value):
            if name == "model":
                raise AttributeError("model is an alias")
            super().__setattr__(name, value)

    anatomy = inspect_model(Guarded())
    assert paths(anatomy) == ["", "language_model", "language_model.model"]
    assert inspect_model(Guarded(), decoder="model.model").chain == anatomy.chain


def test_a_module_registered_twice_is_one_answer():
    model = Wrapper(model=CausalLM())
    model.language_model = model.model
    model.layers = model.model.model.layers
    assert inspect_model(model).decoder.path == "language_model.model"  # of two names, the one that says text


def test_a_shortcut_to_the_decoder_does_not_hide_the_head():
    model = Wrapper(visual=Encoder(), language_model=CausalLM())
    model.model = model.language_model.model
    anatomy = inspect_model(model)
    assert paths(anatomy) == ["", "language_model", "language_model.model"]
    assert anatomy.head.path == "language_model.lm_head"


def test_a_list_of_some_of_the_layers_is_not_the_decoder():
    decoder = Decoder()
    decoder.fast_decoder = Wrapper(embed_tokens=decoder.embed_tokens, decoder_layers=decoder.layers[:2])
    assert inspect_model(CausalLM(decoder)).layers.path == "model.layers"


def test_cycles_end():
    model = Wrapper(language_model=CausalLM())
    model.language_model.parent = model
    model.language_model.model.itself = model.language_model.model
    assert inspect_model(model).decoder.path == "language_model.model"


def test_attributes_that_raise_are_not_touched():
    class Raising(Wrapper):
        @property
        def model(self):
            raise RuntimeError("not yet")

        @property
        def config(self):
            raise RuntimeError("not yet")

        def __getattr__(self, name):
            if name in ("lm_head", "weight", "get_input_embeddings"):
                raise KeyError(name)
            return super().__getattr__(name)

    model = Raising(language_model=CausalLM())
    assert inspect_model(model).decoder.path == "language_model.model"
    refused(model, "EA203", decoder="model")


def test_nothing_is_changed_or_materialised():
    model = CausalLM()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    inspect_model(model)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


@pytest.mark.parametrize(
    "layers",
    [
        nn.ModuleList([Layer(), Layer()]),
        nn.Sequential(Layer(), Layer()),
        nn.Sequential(OrderedDict(layer_0=Layer(), layer_1=Layer())),
        nn.ModuleDict({"0": Layer(), "1": Layer()}),
        nn.ModuleDict({"layer0": Layer(), "layer1": Layer()}),
        OrderedDict([("0", Layer()), ("1", Layer())]),
        {0: Layer(), 1: Layer()},
        [Layer(), Layer()],
        (Layer(), Layer()),
        nn.ModuleList([nn.Identity(), Layer()]),
    ],
    ids=lambda layers: type(layers).__name__,
)
def test_layers_in_any_container(layers):
    anatomy = inspect_model(CausalLM(Decoder(layers)))
    assert anatomy.layers.path == "model.layers"
    assert anatomy.num_layers.value == 2


def test_a_dict_of_parts_is_a_link_not_a_list_of_layers():
    body = nn.ModuleDict({"wte": nn.Embedding(WORDS, WIDTH), "h": layer_list(), "ln_f": nn.LayerNorm(WIDTH)})
    anatomy = inspect_model(Wrapper(transformer=body, lm_head=nn.Linear(WIDTH, WORDS)))
    assert anatomy.layers.path == "transformer.h"
    assert anatomy.final_norm.path == "transformer.ln_f"


def test_missing_parts_stay_missing():
    decoder = Decoder()
    decoder.norm = None
    anatomy = inspect_model(decoder)
    assert anatomy.final_norm is anatomy.head is anatomy.logits is None
    assert paths(anatomy) == [""]


def test_tied_head_is_found_by_its_own_name():
    model = CausalLM()
    model.lm_head = model.model.embed_tokens
    assert inspect_model(model).head.path == "lm_head"


def test_experts_are_not_looked_at():
    class Untouchable(nn.Module):
        def __getattribute__(self, name):
            raise AssertionError(f"looked at an expert: {name}")

    decoder = Decoder()
    for layer in decoder.layers:
        layer.mlp = nn.Module()
        layer.mlp._modules["experts"] = nn.ModuleList()
        layer.mlp.experts._modules.update({str(i): object.__new__(Untouchable) for i in range(8)})
    assert inspect_model(CausalLM(decoder)).num_layers.value == 3


class VllmStyle(Decoder):
    def forward(self, ids):
        return self._maybe_add_hidden_state([], 0, self.embed_tokens(ids), None)

    def _maybe_add_hidden_state(self, states, index, hidden, residual):
        return states


class SglangStyle(Decoder):
    def __init__(self):
        super().__init__()
        self.layers_to_capture = []

    def forward(self, ids):
        return self.run(ids)

    def run(self, ids):
        return list(self.layers_to_capture)


@pytest.mark.parametrize(("cls", "name"), [(VllmStyle, "_maybe_add_hidden_state"), (SglangStyle, "layers_to_capture")])
def test_a_capturing_decoder_is_seen(cls, name):
    capture = inspect_model(CausalLM(cls())).capture
    assert capture.path == "model"
    assert capture.where.startswith(name)


def test_engine_style_logits_paths():
    model = CausalLM()
    model.logits_processor = nn.Identity()
    assert inspect_model(model).logits.path == "logits_processor"

    class Computing(CausalLM):
        def compute_logits(self, hidden):
            return self.lm_head(hidden)

    logits = inspect_model(Computing()).logits
    assert logits.path == "compute_logits"
    assert logits.where.endswith("Computing.compute_logits")


class TestTransparentWrappers:
    def check(self, wrapped, prefix):
        anatomy = inspect_model(wrapped)
        assert anatomy.adapted.path == prefix
        assert anatomy.adapted.class_name.endswith(":CausalLM")
        assert anatomy.layers.path == f"{prefix}.model.layers"
        assert anatomy.num_layers.value == 3
        assert all(link.transparent == (len(link.path) < len(prefix)) for link in anatomy.chain)
        for path in (f"{prefix}.model", "model"):
            assert inspect_model(wrapped, decoder=path).chain == anatomy.chain

    def test_compile(self):
        self.check(torch.compile(CausalLM()), "_orig_mod")

    def test_data_parallel(self):
        self.check(nn.DataParallel(CausalLM()), "module")

    def test_distributed(self, tmp_path):
        torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
        try:
            wrapped = nn.parallel.DistributedDataParallel(CausalLM())
            self.check(wrapped, "module")
            self.check(torch.compile(wrapped), "_orig_mod.module")
            with pytest.warns(UserWarning, match="NO_SHARD"):  # one process: nothing to shard
                sharded = torch.distributed.fsdp.FullyShardedDataParallel(CausalLM(), device_id=torch.device("cpu"))
            self.check(sharded, "_fsdp_wrapped_module")
        finally:
            torch.distributed.destroy_process_group()

    def test_peft(self):
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(target_modules=["o_proj", "lm_head", "embed_tokens"], r=2)
        self.check(peft.get_peft_model(CausalLM(), config), "base_model.model")

    def test_compiled_inner_module_stays_a_link(self):
        model = Wrapper(vision_tower=Encoder(), language_model=torch.compile(CausalLM()))
        anatomy = inspect_model(model)
        assert paths(anatomy) == ["", "language_model", "language_model._orig_mod", "language_model._orig_mod.model"]
        assert anatomy.adapted.path == ""


def test_introspection_imports_no_torch():
    code = "import sys, eagle_adapters.introspect; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
