"""The source agent on vLLM's own classes; nothing of vLLM is imported."""

from __future__ import annotations

import pytest

from eagle_adapters.introspect import engine_class, inspect_class

CHAINS = {
    "LlamaForCausalLM": ["model"],
    "DeepseekV3ForCausalLM": ["model"],
    "GPT2LMHeadModel": ["transformer"],
    "KimiK25ForConditionalGeneration": ["language_model", "language_model.model"],
    "Gemma3ForConditionalGeneration": ["language_model", "language_model.model"],
    "Qwen2_5_VLForConditionalGeneration": ["language_model", "language_model.model"],
    "Qwen3VLForConditionalGeneration": ["language_model", "language_model.model"],
    "Llama4ForConditionalGeneration": ["language_model", "language_model.model"],
    "Gemma4ForConditionalGeneration": ["language_model", "language_model.model"],
}


@pytest.mark.parametrize("architecture", CHAINS)
def test_known_chains(architecture):
    name = engine_class("vllm", architecture)
    anatomy = inspect_class(name)
    decoder = CHAINS[architecture][-1]
    assert [link.path for link in anatomy.chain] == ["", *CHAINS[architecture]]
    assert anatomy.layers.path.rpartition(".")[0] == decoder
    assert anatomy.embedding.path.startswith(f"{decoder}.")
    assert anatomy.logits.path == "compute_logits"
    assert all(link.where.startswith("vllm/") for link in anatomy.chain)


@pytest.mark.parametrize("architecture", ["LlavaForConditionalGeneration", "InternVLChatModel"])
def test_chains_that_the_checkpoint_completes(architecture):
    name = engine_class("vllm", architecture)
    anatomy = inspect_class(name)
    assert anatomy.dynamic
    assert anatomy.decoder.path == "language_model"
    known = inspect_class(name, inner=engine_class("vllm", "Qwen2ForCausalLM"))
    assert known.layers.path == "language_model.model.layers"
    assert known.head.path == "language_model.lm_head"


def test_capture_is_told_from_none():
    assert inspect_class(engine_class("vllm", "LlamaForCausalLM")).capture.where.startswith("_maybe_add_hidden_state")
    assert inspect_class(engine_class("vllm", "Gemma3ForConditionalGeneration")).capture is None


def test_unknown_architecture():
    assert engine_class("vllm", "NoSuchForCausalLM") is None
