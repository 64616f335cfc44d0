"""The source agent against hand-written classes and the real sources of transformers."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from eagle_adapters.errors import IntrospectionError
from eagle_adapters.introspect import inspect_class

PARTS = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = nn.Linear(8, 8)


class Decoder(nn.Module):
    def __init__(self, layer_cls=Layer):
        super().__init__()
        self.embed_tokens = nn.Embedding(32, 8)
        self.layers = nn.ModuleList([layer_cls() for _ in range(2)])
        self.norm = nn.LayerNorm(8)

    def forward(self, hidden):
        for index, layer in enumerate(self.layers):
            if index in self.layers_to_capture:
                hidden = hidden.clone()
            hidden = layer(hidden)
        return self.norm(hidden)


class CausalLM(nn.Module):
    decoder_cls = Decoder

    def __init__(self):
        super().__init__()
        self.model = self._init_model()
        self.lm_head = nn.Linear(8, 32)

    def _init_model(self, cls=None):
        return self.decoder_cls()


class Other(CausalLM):
    pass


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(2)])


def make_layers(count, layer_fn, prefix=""):
    return 0, count, nn.ModuleList([layer_fn(prefix=str(i)) for i in range(count)])


def init_vllm_registered_model(**kwargs):
    raise NotImplementedError
"""


@pytest.fixture
def inspect_text(tmp_path):
    """Anatomy of the class `Target` in a text that may import from `parts`."""
    (tmp_path / "parts.py").write_text(PARTS)

    def inspect(text, **kwargs):
        (tmp_path / "target.py").write_text(
            "from torch import nn\nimport parts\nfrom parts import *\n" + textwrap.dedent(text)
        )
        return inspect_class("target:Target", roots=[tmp_path], **kwargs)

    return inspect


def chain(anatomy):
    return [(link.path, link.class_name.partition(":")[2]) for link in anatomy.chain]


def with_init(*lines, base="nn.Module"):
    body = "\n".join(f"        {line}" for line in ["super().__init__()", *lines])
    return f"class Target({base}):\n    def __init__(self, config=None, **kwargs):\n{body}\n"


FULL = [("", "Target"), ("language_model", "CausalLM"), ("language_model.model", "Decoder")]


def test_every_fact_says_file_and_line(inspect_text):
    anatomy = inspect_text(with_init("self.vision_tower = Tower()", "self.language_model = CausalLM()"))
    assert chain(anatomy) == FULL
    lines = {number: line.strip() for number, line in enumerate(PARTS.splitlines(), 1)}

    def at(fact):
        file, _, number = fact.where.rpartition(":")
        assert file == "parts.py"
        return lines[int(number)]

    assert anatomy.chain[1].where == "target.py:8"
    assert at(anatomy.chain[2]) == "self.model = self._init_model()"
    assert at(anatomy.layers).startswith("self.layers =")
    assert at(anatomy.embedding).startswith("self.embed_tokens =")
    assert at(anatomy.head).startswith("self.lm_head =")
    assert at(anatomy.final_norm).startswith("self.norm =")
    assert anatomy.embedding.class_name == "torch.nn.modules.sparse:Embedding"
    assert anatomy.num_layers is anatomy.hidden_size is None
    assert anatomy.capture.where.startswith("layers_to_capture at parts.py:")


@pytest.mark.parametrize(
    "lines",
    [
        ["self.language_model = parts.CausalLM()"],
        ["cls = CausalLM if config else CausalLM", "self.language_model = cls().eval().to('cpu')"],
        ["self.language_model = None", "if config:", "    self.language_model = CausalLM()"],
        ["if config:", "    self.language_model = CausalLM()", "else:", "    self.language_model = nn.Identity()"],
        ["with config.mark():", "    self.language_model = CausalLM()"],
        ["try:", "    self.language_model = CausalLM()", "except ImportError:", "    raise"],
        ["self.language_model = build(config)"],
        ["self.language_model = TABLE[config.kind](config)"],
        ["self.language_model = TABLE.get(config.kind)(config)"],
        ["setattr(self, 'language_model', CausalLM())"],
        ["self.add_module('language_model', CausalLM())"],
        ["self.language_model = (lambda: CausalLM())()"],
        ["from functools import partial", "self.language_model = partial(CausalLM)()"],
        ["self.language_model = CausalLM()", "self.parent_of(self.language_model)"],
        ["self.language_model = CausalLM()", "self.model = self.language_model.model"],
        ["self.language_model = torch.compile(CausalLM())"],
    ],
)
def test_ways_to_make_the_language_model(inspect_text, lines):
    text = "import torch\nTABLE = {'a': CausalLM}\n\n\ndef build(config):\n    return CausalLM()\n\n\n"
    assert chain(inspect_text(text + with_init(*lines))) == FULL


@pytest.mark.parametrize(
    "layers",
    [
        "self.layers = nn.ModuleList([Layer() for _ in range(3)])",
        "self.layers = nn.ModuleList([Layer()] * 3)",
        "self.layers = nn.Sequential(*[Layer() for _ in range(3)])",
        "self.start_layer, self.end_layer, self.layers = make_layers(3, lambda prefix: Layer())",
        "self.start_layer, self.end_layer, self.layers = make_layers(3, layer_fn=lambda prefix: kwargs['cls']())",
        "self.layers = nn.ModuleDict({str(i): Layer() for i in range(3)})",
        "self.layers = nn.ModuleList()\n        for i in range(3):\n            self.layers.append(Layer())",
        "made = []\n        for i in 'ab':\n            made += [Layer()]\n        self.layers = nn.ModuleList(made)",
    ],
)
def test_ways_to_make_layers(inspect_text, layers):
    text = with_init("self.embed_tokens = nn.Embedding(32, 8)", layers)
    assert inspect_text(text).layers.path == "layers"


def test_a_list_of_some_of_the_layers_is_not_the_decoder(inspect_text):
    text = """
    class Fast(nn.Module):
        def __init__(self, embed_tokens, decoder_layers):
            super().__init__()
            self.embed_tokens = embed_tokens
            self.decoder_layers = decoder_layers


    class Target(Decoder):
        def __init__(self):
            super().__init__()
            self.fast_decoder = Fast(self.embed_tokens, self.layers[:1])
    """
    assert inspect_text(text).layers.path == "layers"


def test_inheritance_follows_super_and_class_attributes(inspect_text):
    text = """
    class Bigger(Decoder):
        pass


    class Base(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.language_model = inner()


    class Inner(CausalLM):
        decoder_cls = Bigger


    class Target(Base):
        def __init__(self):
            super().__init__(inner=Inner)
    """
    assert chain(inspect_text(text)) == [
        ("", "Target"),
        ("language_model", "Inner"),
        ("language_model.model", "Bigger"),
    ]


def test_classes_that_the_config_chooses_are_listed(inspect_text):
    lines = ["if config.kind == 1:", "    self.language_model = CausalLM()", "elif config.kind == 2:"]
    lines += ["    self.language_model = Other()", "else:", "    raise ValueError"]
    anatomy = inspect_text(with_init(*lines))
    assert chain(anatomy) == FULL
    assert anatomy.chain[1].others == ("parts:Other",)


@pytest.mark.parametrize(
    "line",
    [
        "self.language_model = AutoModelForCausalLM.from_config(config.text_config)",
        "self.language_model = init_vllm_registered_model(hf_config=config.text_config)",
        "self.language_model = kwargs['registry'].resolve(config)(config)",
    ],
)
def test_a_class_that_the_checkpoint_chooses_ends_the_chain(inspect_text, line):
    text = "from transformers import AutoModelForCausalLM\n" + with_init("self.vision_tower = Tower()", line)
    anatomy = inspect_text(text)
    assert anatomy.dynamic
    assert [link.path for link in anatomy.chain] == ["", "language_model"]
    assert anatomy.layers is anatomy.embedding is None
    assert anatomy.as_dict()["chain"][1]["dynamic"] is True
    known = inspect_text(text, inner="parts:CausalLM")
    assert chain(known) == FULL
    assert known.layers.path == "language_model.model.layers"


def test_decoder_chooses_and_refusals_have_codes(inspect_text):
    text = with_init("self.first = CausalLM()", "self.second = CausalLM()")
    assert inspect_text(text, decoder="second").decoder.path == "second.model"
    for code, kwargs, source in [
        ("EA201", {}, text),
        ("EA203", {"decoder": "third"}, text),
        ("EA202", {}, with_init("self.vision_tower = Tower()", "self.language_model = None")),
        ("EA204", {"inner": "parts:Nothing"}, text),
    ]:
        with pytest.raises(IntrospectionError) as caught:
            inspect_text(source, **kwargs)
        assert caught.value.code == code


@pytest.mark.parametrize("name", ["nowhere:Class", "Class", "torch.nn:Linear", "/nowhere/file.py:Class", "json:loads"])
def test_names_without_a_class_are_refused(name):
    with pytest.raises(IntrospectionError) as caught:
        inspect_class(name)
    assert caught.value.code == "EA204"


def test_a_class_that_holds_itself_ends(inspect_text):
    text = with_init("self.language_model = CausalLM()", "self.draft = Target()")
    assert chain(inspect_text(text)) == FULL


@pytest.mark.parametrize(
    ("name", "decoder", "head"),
    [
        ("llama.modeling_llama:LlamaForCausalLM", "model", "lm_head"),
        ("deepseek_v3.modeling_deepseek_v3:DeepseekV3ForCausalLM", "model", "lm_head"),
        ("gpt2.modeling_gpt2:GPT2LMHeadModel", "transformer", "lm_head"),
        ("opt.modeling_opt:OPTForCausalLM", "model.decoder", "lm_head"),
        ("mixtral.modeling_mixtral:MixtralForCausalLM", "model", "lm_head"),
        ("llama4.modeling_llama4:Llama4ForConditionalGeneration", "language_model.model", "language_model.lm_head"),
        ("qwen2_5_vl.modeling_qwen2_5_vl:Qwen2_5_VLForConditionalGeneration", "model.language_model", "lm_head"),
        ("t5.modeling_t5:T5ForConditionalGeneration", "decoder", "lm_head"),
    ],
)
def test_real_transformers_classes(name, decoder, head):
    anatomy = inspect_class(f"transformers.models.{name}")
    assert anatomy.decoder.path == decoder
    assert anatomy.head.path == head
    assert anatomy.embedding.path.startswith(decoder)
    assert anatomy.layers.where.startswith("transformers/models/")


@pytest.mark.parametrize(
    "name",
    [
        "Kimi_K25ForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "Gemma3ForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
    ],
)
def test_real_transformers_classes_whose_decoder_the_config_chooses(name):
    anatomy = inspect_class(f"transformers:{name}")
    assert anatomy.dynamic
    assert anatomy.decoder.path == "model.language_model"
    assert anatomy.head.path == "lm_head"


def test_nothing_of_the_target_is_imported():
    code = (
        "import sys\n"
        "from eagle_adapters.introspect import inspect_class\n"
        "inspect_class('transformers.models.llama.modeling_llama:LlamaForCausalLM')\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
