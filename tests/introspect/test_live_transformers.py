"""The live agent on real transformers classes, built from small configs on the meta device."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import AutoConfig

from eagle_adapters.introspect import inspect_model
from eagle_adapters.tiny import build_model, tiny_config

FAMILIES = {
    "kimi_k25": "model.language_model",
    "deepseek_v2": "model",
    "deepseek_v3": "model",
    "llama4": "language_model.model",
    "qwen2_5_vl": "model.language_model",
    "qwen3_vl": "model.language_model",
    "gemma2": "model",
    "gemma3": "model.language_model",
    "llava": "model.language_model",
    "internvl": "model.language_model",
    "mistral3": "model.language_model",
    "glm4v": "model.language_model",
    "gpt2": "transformer",
    "opt": "model.decoder",
    "mixtral": "model",
    "falcon": "transformer",
}
LAYERS = {"gpt2": "h", "falcon": "h"}


def on_meta(architecture, model_type, **fields):
    config = AutoConfig.for_model(model_type, **fields)
    with torch.device("meta"):
        return getattr(transformers, architecture)(config)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_of_the_registry(family):
    config = tiny_config(family)
    text = config.get("text_config", config)
    anatomy = inspect_model(build_model(config, device="meta"))
    decoder = FAMILIES[family]
    assert anatomy.decoder.path == decoder
    assert anatomy.layers.path == f"{decoder}.{LAYERS.get(family, 'layers')}"
    assert anatomy.num_layers.value == (text.get("num_hidden_layers") or text["n_layer"])
    assert anatomy.hidden_size.value == (text.get("hidden_size") or text["n_embd"])
    assert anatomy.embedding.path.startswith(f"{decoder}.")
    assert anatomy.head.path.endswith("lm_head")
    assert anatomy.final_norm.path.startswith(f"{decoder}.")
    assert anatomy.capture is None


SMALL = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 64}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
GEMMA3N = {
    **GROUPED,
    "layer_types": ["full_attention"] * 3,
    "num_kv_shared_layers": 0,
    "activation_sparsity_pattern": [0.0] * 3,
    "vocab_size_per_layer_input": 64,
}
OMNI_TEXT = {**GROUPED, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}}
OMNI_VISION = {
    "depth": 2,
    "hidden_size": 32,
    "embed_dim": 32,
    "num_heads": 4,
    "intermediate_size": 32,
    "out_hidden_size": 32,
}
OMNI_AUDIO = {"encoder_layers": 2, "d_model": 32, "encoder_attention_heads": 4, "encoder_ffn_dim": 32, "output_dim": 32}
OMNI = {"text_config": OMNI_TEXT, "vision_config": OMNI_VISION, "audio_config": OMNI_AUDIO}


@pytest.mark.parametrize(
    ("architecture", "model_type", "fields", "layers", "head"),
    [
        (
            "T5ForConditionalGeneration",
            "t5",
            {"d_model": 32, "num_layers": 2, "num_decoder_layers": 3},
            "decoder.block",
            "lm_head",
        ),
        (
            "BartForConditionalGeneration",
            "bart",
            {"d_model": 32, "decoder_layers": 3},
            "model.decoder.layers",
            "lm_head",
        ),
        (
            "WhisperForConditionalGeneration",
            "whisper",
            {"d_model": 48, "decoder_layers": 3},
            "model.decoder.layers",
            "proj_out",
        ),
        ("BloomForCausalLM", "bloom", {"hidden_size": 32, "n_layer": 3, "n_head": 4}, "transformer.h", "lm_head"),
        ("MptForCausalLM", "mpt", {"d_model": 32, "n_layers": 3, "n_heads": 4}, "transformer.blocks", "lm_head"),
        ("GPTNeoXForCausalLM", "gpt_neox", SMALL, "gpt_neox.layers", "lm_head"),
        ("MambaForCausalLM", "mamba", {"hidden_size": 32, "num_hidden_layers": 3}, "backbone.layers", "lm_head"),
        ("Gemma3nForCausalLM", "gemma3n_text", GEMMA3N, "model.layers", "lm_head"),
        (
            "MllamaForConditionalGeneration",
            "mllama",
            {"text_config": {**GROUPED, "cross_attention_layers": [1], "pad_token_id": 1}},
            "model.language_model.layers",
            "lm_head",
        ),
        ("Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_thinker", OMNI, "model.layers", "lm_head"),
        (
            "Qwen2_5OmniForConditionalGeneration",
            "qwen2_5_omni",
            {"thinker_config": OMNI, "enable_audio_output": True},
            "thinker.model.layers",
            "thinker.lm_head",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value[0].isupper() else "",
)
def test_other_shapes(architecture, model_type, fields, layers, head):
    anatomy = inspect_model(on_meta(architecture, model_type, **fields))
    assert anatomy.layers.path == layers
    assert anatomy.num_layers.value == 3
    assert anatomy.head.path == head
    assert anatomy.embedding is not None


def test_two_recurrent_stacks_are_refused():
    from eagle_adapters.errors import IntrospectionError

    with torch.device("meta"):
        model = transformers.HrmTextForCausalLM(transformers.HrmTextConfig(num_hidden_layers=2, hidden_size=48))
    with pytest.raises(IntrospectionError, match=r"model\.L_module\.layers, model\.H_module\.layers"):
        inspect_model(model)
    assert inspect_model(model, decoder="model.H_module").decoder.path == "model.H_module"
