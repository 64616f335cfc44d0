"""The source agent on SGLang's own classes; nothing of SGLang is imported."""

from __future__ import annotations

import pytest

from eagle_adapters.introspect import engine_class, inspect_class

CHAINS = {
    "LlamaForCausalLM": ["model"],
    "DeepseekV3ForCausalLM": ["model"],
    "GPT2LMHeadModel": ["transformer"],
    "KimiK25ForConditionalGeneration": ["language_model", "language_model.model"],
    "Gemma3ForConditionalGeneration": ["language_model", "language_model.model"],
    "InternVLChatModel": ["language_model", "language_model.model"],
    "Llama4ForConditionalGeneration": ["language_model", "language_model.model"],
    "LlavaQwenForCausalLM": ["language_model", "language_model.model"],
    "Qwen2_5_VLForConditionalGeneration": ["model"],
    "Qwen3VLForConditionalGeneration": ["model"],
    "Qwen3OmniMoeForConditionalGeneration": ["thinker", "thinker.model"],
}


@pytest.mark.parametrize("architecture", CHAINS)
def test_known_chains(architecture):
    name = engine_class("sglang", architecture)
    anatomy = inspect_class(name)
    decoder = CHAINS[architecture][-1]
    assert [link.path for link in anatomy.chain] == ["", *CHAINS[architecture]]
    assert anatomy.layers.path.rpartition(".")[0] == decoder
    assert anatomy.embedding.path.startswith(f"{decoder}.")
    assert anatomy.logits.path.rpartition(".")[2] == "logits_processor"
    assert all(link.where.startswith("sglang/srt/models/") for link in anatomy.chain)


def test_classes_that_the_config_chooses_are_listed():
    link = inspect_class(engine_class("sglang", "InternVLChatModel")).chain[1]
    assert link.class_name.endswith(":Qwen2ForCausalLM")
    assert "sglang.srt.models.gpt_oss:GptOssForCausalLM" in link.others


def test_chain_that_the_checkpoint_completes():
    name = engine_class("sglang", "LlavaForConditionalGeneration")
    anatomy = inspect_class(name)
    assert anatomy.dynamic
    assert anatomy.decoder.path == "language_model"
    known = inspect_class(name, inner=engine_class("sglang", "Qwen2ForCausalLM"))
    assert known.layers.path == "language_model.model.layers"


def test_capture_is_told_from_none():
    assert inspect_class(engine_class("sglang", "LlamaForCausalLM")).capture.where.startswith("layers_to_capture")
    assert inspect_class(engine_class("sglang", "GPT2LMHeadModel")).capture is None


def test_unknown_architecture():
    assert engine_class("sglang", "NoSuchForCausalLM") is None
