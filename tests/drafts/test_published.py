"""Every checkpoint shape seen in the wild is read from a file of that shape, with its boundaries and convention."""

from __future__ import annotations

from typing import Any

import pytest

from eagle_adapters.boundaries import Convention, ConventionSource, read_ids
from eagle_adapters.drafts.keys import Layout, write
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.drafts.spec import Attention, Format, Weights
from eagle_adapters.testing.checkpoints import write_sparse

BOUNDARY, OUTPUT = Convention.BOUNDARY, Convention.LAYER_OUTPUT
TRIPLE, LAST, NONE, OPEN = (
    ConventionSource.DEFAULT_TRIPLE,
    ConventionSource.LAST_AMONG_IDS,
    ConventionSource.NO_IDS,
    ConventionSource.UNDECIDED,
)


def llama(
    hidden: int, mlp: int, heads: int, kv: int, vocab: int, draft_vocab: int | None, **fields: Any
) -> dict[str, Any]:
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": 128,
        "num_hidden_layers": 1,
        "vocab_size": vocab,
        "rope_theta": 1000000.0,
        "max_position_embeddings": 131072,
    }
    return config | ({} if draft_vocab is None else {"draft_vocab_size": draft_vocab}) | fields


def nested(ids: list[int], **more: Any) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True} | more}


def kimi_mla(ids: list[int] | None, **fields: Any) -> dict[str, Any]:
    """TorchSpec's and modelopt's template of an MLA draft for Kimi."""
    switches = {
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": True,
        "use_mtp_layernorm": False,
        "use_aux_hidden_state": True,
    }
    config = llama(7168, 18432, 64, 64, 163840, 163840, model_type="kimi_k2", rope_theta=50000.0)
    config |= {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "rope_scaling": {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "mscale": 1.0},
        "eagle_config": switches if ids is None else switches | {"eagle_aux_hidden_state_layer_ids": ids},
    }
    return config | fields


def speculators(layer: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": "meta-llama/Llama-3.1-8B-Instruct", "architectures": ["LlamaForCausalLM"]},
        },
        "draft_vocab_size": 32000,
        "norm_before_residual": True,
        "transformer_layer_config": {key: value for key, value in layer.items() if key != "architectures"},
    } | fields


KIMI = (7168, 18432, 64, 64, 163840, 32000)
GPT_OSS = (2880, 17280, 64, 8, 201088, 32000)

# name, config, N of the target, format, layout, boundaries, convention, source
CASES: list[tuple[str, dict[str, Any], int, Format, Layout, list[int] | None, Convention | None, ConventionSource]] = [
    (
        "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        llama(4096, 14336, 32, 8, 128256, 32000, architectures=["LlamaForCausalLM"], max_position_embeddings=2048),
        32, Format.EAGLE, Layout.MIDLAYER, [2, 16, 29], BOUNDARY, NONE,
    ),
    (
        "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",
        llama(6144, 28672, 48, 8, 128256, 32000, architectures=["LlamaForCausalLM"], target_hidden_size=8192),
        80, Format.EAGLE, Layout.MIDLAYER, [2, 40, 77], BOUNDARY, NONE,
    ),
    (
        "AQ-MedAI/Kimi-K2-Instruct-eagle3",
        llama(*KIMI, **nested([2, 30, 58])),
        61, Format.SPECFORGE, Layout.MIDLAYER, [2, 30, 58], BOUNDARY, TRIPLE,
    ),
    (
        "AQ-MedAI/Kimi-K25-eagle3",
        llama(*KIMI, max_position_embeddings=262144, **nested([2, 30, 58])),
        61, Format.SPECFORGE, Layout.MIDLAYER, [2, 30, 58], BOUNDARY, TRIPLE,
    ),
    (
        "lightseekorg/kimi-k2.5-eagle3",
        llama(7168, 18432, 64, 64, 163840, None, _torchspec_version="0.1.0"),
        61, Format.TORCHSPEC, Layout.LAYERS, [2, 30, 58], BOUNDARY, NONE,
    ),
    (
        "lightseekorg/kimi-k2.5-eagle3-mla",
        kimi_mla([2, 30, 58], _torchspec_version="0.1.0"),
        61, Format.TORCHSPEC, Layout.LAYERS, [2, 30, 58], BOUNDARY, TRIPLE,
    ),
    (
        "TorchSpec's training template for Kimi",
        kimi_mla([1, 29, 57]),
        61, Format.MODELOPT, Layout.MIDLAYER, [2, 30, 58], OUTPUT, TRIPLE,
    ),
    (
        "k-l-lambda/Kimi-K2.5-Eagle3",
        kimi_mla([2, 30, 58]),
        61, Format.MODELOPT, Layout.LAYERS, [2, 30, 58], BOUNDARY, TRIPLE,
    ),
    (
        "nvidia/Kimi-K2.5-Thinking-Eagle3",
        kimi_mla(None),
        61, Format.MODELOPT, Layout.LAYERS, [2, 30, 58], BOUNDARY, NONE,
    ),
    (
        "lightseekorg/kimi-k2.6-eagle3.1-mla",
        kimi_mla([2, 30, 58], fc_norm=True, norm_output=True, _torchspec_version="0.2.0"),
        61, Format.TORCHSPEC, Layout.LAYERS, [2, 30, 58], BOUNDARY, TRIPLE,
    ),
    (
        "cm00cm/Kimi-K2.7-Code-EAGLE3",
        llama(*KIMI, **nested([1, 29, 57])),
        61, Format.SPECFORGE, Layout.MIDLAYER, [2, 30, 58], OUTPUT, TRIPLE,
    ),
    (
        "nvidia/gpt-oss-120b-Eagle3-long-context",
        llama(*GPT_OSS, head_dim=64, **nested([1, 17, 32], use_last_layernorm=True)),
        36, Format.MODELOPT, Layout.LAYERS, [2, 18, 33], OUTPUT, TRIPLE,
    ),
    (
        "nvidia/gpt-oss-120b-Eagle3-v3",
        llama(*GPT_OSS, head_dim=64, norm_before_fc=True, **nested([24, 30, 36], use_last_layernorm=True)),
        36, Format.MODELOPT, Layout.LAYERS, [24, 30, 36], BOUNDARY, LAST,
    ),
    (
        "nvidia/Llama-4-Maverick-17B-128E-Eagle3",
        llama(5120, 8192, 40, 8, 202048, 32000, **nested([1, 23, 44], use_last_layernorm=True)),
        48, Format.MODELOPT, Layout.LAYERS, [2, 24, 45], OUTPUT, TRIPLE,
    ),
    (
        "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
        speculators(llama(4096, 14336, 32, 8, 128256, None)),
        32, Format.SPECULATORS, Layout.LAYERS, [2, 16, 29], BOUNDARY, NONE,
    ),
    (
        "speculators with ids at the top",
        speculators(
            llama(2048, 12288, 32, 4, 151936, None),
            architectures=["Eagle3DraftModel"],
            eagle_aux_hidden_state_layer_ids=[2, 24, 45],
            norm_before_fc=True,
        ),
        48, Format.SPECULATORS, Layout.LAYERS, [2, 24, 45], BOUNDARY, TRIPLE,
    ),
    (
        "AngelSlim/Qwen3-8B_eagle3",
        llama(4096, 12288, 32, 8, 151936, 32000),
        36, Format.SPECFORGE, Layout.MIDLAYER, [2, 18, 33], BOUNDARY, NONE,
    ),
    (
        "AngelSlim, its own Qwen3-VL-4B config",
        llama(
            2560, 9728, 32, 8, 151936, 32000,
            architectures=["Eagle3LlamaForCausalLM"],
            modal_type="VLM",
            tie_word_embeddings=True,
            rope_scaling={"type": "default", "rope_type": "default", "mrope_section": [24, 20, 20]},
        ),
        36, Format.ANGELSLIM, Layout.MIDLAYER, [2, 18, 33], BOUNDARY, NONE,
    ),
    (
        "Rayzl/qwen2.5-vl-7b-eagle3-sgl",
        llama(
            3584, 18944, 28, 4, 152064, 32000,
            architectures=["Eagle3Qwen2_5vlForCausalLM"],
            rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]},
        ),
        28, Format.EAGLE, Layout.MIDLAYER, [2, 14, 25], BOUNDARY, NONE,
    ),
    (
        "SpecForge deepseek-v3",
        llama(7168, 40960, 56, 8, 129280, 32000, **nested([1, 29, 57])),
        61, Format.SPECFORGE, Layout.MIDLAYER, [2, 30, 58], OUTPUT, TRIPLE,
    ),
    (
        "SpecForge qwen3-235B",
        llama(4096, 24576, 64, 4, 151936, 32000, **nested([1, 46, 90])),
        94, Format.SPECFORGE, Layout.MIDLAYER, [2, 47, 91], OUTPUT, TRIPLE,
    ),
    (
        "SpecForge gpt-oss-120B",
        llama(*GPT_OSS, head_dim=64, **nested([1, 17, 33])),
        36, Format.SPECFORGE, Layout.MIDLAYER, None, None, OPEN,
    ),
    (
        "zjxia/step-3.5-flash-eagle3-SpecForge-draft",
        llama(4096, 11264, 64, 8, 128896, 32000, **nested([4, 20, 40])),
        45, Format.SPECFORGE, Layout.MIDLAYER, None, None, OPEN,
    ),
    (
        "Lorbus/MiniMax-M2.7-EAGLE3",
        llama(3072, 8192, 48, 8, 200064, 32000, **nested([2, 31, 59])),
        62, Format.SPECFORGE, Layout.MIDLAYER, [2, 31, 59], BOUNDARY, TRIPLE,
    ),
    (
        "NeMo Automodel",
        llama(4096, 14336, 32, 8, 128256, 32000, architectures=["LlamaEagle3DraftModel"], fc_norm=True),
        32, Format.AUTOMODEL, Layout.PREFIXED, [2, 16, 29], BOUNDARY, NONE,
    ),
]  # fmt: skip


@pytest.mark.parametrize("with_weights", [True, False], ids=["folder", "config alone"])
@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_published_shapes_are_read(case: Any, with_weights: bool, make_draft: Any) -> None:
    _, config, layers, form, layout, boundaries, convention, source = case
    folder = make_draft(config)
    bare = read_draft(folder / "config.json")
    if with_weights:
        shapes = {write(name, layout): shape for name, shape in bare.required_tensors().items() if shape is not None}
        if not config.get("tie_word_embeddings"):
            shapes["lm_head.weight"] = (bare.draft_vocab_size, bare.hidden_size)
        write_sparse(folder / "model.safetensors", shapes)
    spec = read_draft(folder) if with_weights else bare
    reading = read_ids(spec.ids, layers)

    if with_weights or form is not Format.AUTOMODEL:
        assert spec.format is form
    assert spec.layout is (layout if with_weights else None)
    assert (None if reading.boundaries is None else [int(b) for b in reading.boundaries]) == boundaries
    assert reading.convention is convention
    assert reading.source is source
    assert spec.num_aux == 3
    assert spec.attention is (Attention.MLA if "kv_lora_rank" in config else Attention.GQA)
    if with_weights:
        assert spec.aux_claims[0].where.startswith(write("fc.weight", layout))
        assert not spec.unknown
        assert not spec.doubles
        assert set(spec.required_tensors()) <= set(spec.tensors)
        assert spec.embedding is Weights.TARGET
        assert spec.head is (Weights.TIED if config.get("tie_word_embeddings") else Weights.OWN)


def test_a_narrow_draft_keeps_the_targets_width(make_draft: Any) -> None:
    spec = read_draft(make_draft(CASES[1][1]))
    assert (spec.hidden_size, spec.target_hidden_size) == (6144, 8192)
    assert spec.required_tensors()["fc.weight"] == (6144, 3 * 8192)


def test_a_draft_on_the_last_state_alone_uses_no_captured_states(make_draft: Any) -> None:
    """nvidia/gpt-oss-120b-Eagle3-v2 and -short-context."""
    config = llama(*GPT_OSS, head_dim=64, eagle_config={"use_aux_hidden_state": False, "use_last_layernorm": True})
    spec = read_draft(make_draft(config))
    assert (spec.uses_states, spec.num_aux) == (False, 0)
    assert "fc.weight" not in spec.required_tensors()


def test_norm_switches_and_rope_are_read(make_draft: Any) -> None:
    mla = read_draft(make_draft(CASES[9][1], name="mla"))
    assert (mla.norms.per_state, mla.norms.output, mla.norms.before_fc) == (True, True, False)
    assert mla.rope.scaling == {
        "rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "mscale": 1.0,
    }  # fmt: skip
    nvidia = read_draft(make_draft(CASES[12][1], name="v3"))
    assert nvidia.norms.before_fc
    assert nvidia.required_tensors()["input_norm.weight"] == (3 * 2880,)
    redhat = read_draft(make_draft(CASES[14][1], name="redhat"))
    assert redhat.norms.before_residual
    assert redhat.norms.stated["before_residual"] == "norm_before_residual"
    assert (redhat.verifier, redhat.speculative_tokens) == ("meta-llama/Llama-3.1-8B-Instruct", 3)
    vision = read_draft(make_draft(CASES[17][1], name="vision"))
    assert vision.rope.mrope_section == (24, 20, 20)
    assert vision.rope.scaling == {}


def test_the_number_of_states_comes_from_the_fusion_weights(make_draft: Any) -> None:
    folder = make_draft(llama(64, 128, 4, 4, 200, 100, eagle_aux_hidden_state_layer_ids=[2, 10, 20, 30]))
    shapes = {"layers.0.hidden_norm.weight": (64,), "fc.weight": (64, 4 * 64)}
    write_sparse(folder / "model.safetensors", shapes)
    spec = read_draft(folder)
    assert spec.num_aux == 4
    assert [claim.value for claim in spec.aux_claims] == [4, 4]
