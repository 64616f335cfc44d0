"""What is planned for vLLM's classes: without an engine, on the classes themselves."""

from __future__ import annotations

import inspect

import pytest

import eagle_adapters
from eagle_adapters.backends.vllm import BACKEND
from eagle_adapters.errors import AdaptationError
from eagle_adapters.plan import Plan, Refusal

PROTOCOL = (
    "supports_eagle3",
    "has_own_lm_head",
    "has_own_embed_tokens",
    "set_aux_hidden_state_layers",
    "get_eagle3_default_aux_hidden_state_layers",
)


def model_class(architecture: str) -> type:
    from vllm.model_executor.models import ModelRegistry

    cls = ModelRegistry._try_load_model_cls(architecture)
    assert cls is not None
    return cls


def test_a_native_class_is_complete() -> None:
    plan = BACKEND.plan(model_class("LlamaForCausalLM"))
    assert isinstance(plan, Plan)
    assert plan.edits == ()


def test_wrapping_gives_the_protocol_and_unwrapping_takes_it_back() -> None:
    from vllm.model_executor.models.gemma3 import Gemma3ForCausalLM, Gemma3Model

    cls = model_class("Gemma3ForConditionalGeneration")
    classes = (cls, Gemma3ForCausalLM, Gemma3Model)
    before = [dict(vars(c)) for c in classes]
    name = cls.__qualname__
    assert eagle_adapters.explain(cls).status == "adaptable"
    eagle_adapters.wrap(cls)
    try:
        assert cls.__qualname__ == name
        assert all(hasattr(cls, hook) for hook in PROTOCOL)
        assert all(hasattr(Gemma3ForCausalLM, hook) for hook in PROTOCOL)
        source = inspect.getsource(Gemma3Model.forward)
        assert "aux_hidden_state_layers" in source
        assert "hidden_states + residual" in source
        assert eagle_adapters.explain(cls).status == "adapted"
        eagle_adapters.wrap(cls)
    finally:
        eagle_adapters.unwrap(cls)
    assert [dict(vars(c)) for c in classes] == before


def test_a_decoder_shared_by_two_targets_is_adapted_once() -> None:
    outer, inner = model_class("Gemma3ForConditionalGeneration"), model_class("Gemma3ForCausalLM")
    eagle_adapters.wrap(outer)
    eagle_adapters.wrap(inner)
    eagle_adapters.unwrap(outer)
    assert all(hasattr(inner, hook) for hook in PROTOCOL)
    eagle_adapters.unwrap(inner)
    assert not hasattr(inner, "supports_eagle3")


@pytest.mark.parametrize(
    "architecture", ["LlavaForConditionalGeneration", "InternVLChatModel", "StepVLForConditionalGeneration"]
)
def test_a_target_whose_inner_model_the_checkpoint_chooses_delegates(architecture) -> None:
    plan = BACKEND.plan(model_class(architecture))
    assert isinstance(plan, Plan)
    assert plan.anatomy is not None
    assert plan.anatomy.dynamic
    hook = next(edit for edit in plan.edits if edit.name == "set_aux_hidden_state_layers")
    assert "self.language_model.set_aux_hidden_state_layers(layers)" in hook.source


@pytest.mark.parametrize(
    "architecture", ["Exaone4_5_ForConditionalGeneration", "CohereCompassForConditionalGeneration"]
)
def test_a_claim_over_a_decoder_that_captures_nothing_is_repaired(architecture) -> None:
    cls = model_class(architecture)
    plan = BACKEND.plan(cls)
    assert isinstance(plan, Plan)
    assert plan.anatomy is not None
    edited = {(edit.owner, edit.name) for edit in plan.edits}
    assert (plan.anatomy.decoder.class_name, "forward") in edited
    assert (plan.target, "set_aux_hidden_state_layers") in edited


def test_a_decoder_that_lost_the_capture_of_its_base_gets_it_back() -> None:
    plan = BACKEND.plan(model_class("MiMoForCausalLM"))
    assert isinstance(plan, Plan)
    assert [(edit.owner, edit.name) for edit in plan.edits] == [
        ("vllm.model_executor.models.mimo:MiMoModel", "forward")
    ]


@pytest.mark.parametrize(
    ("architecture", "code"),
    [
        ("MambaForCausalLM", "EA521"),
        ("Qwen4ExpForConditionalGeneration", "EA423"),
        ("Gemma3nForConditionalGeneration", "EA421"),
        ("IQuestLoopCoderForCausalLM", "EA424"),
        ("HYV4ForCausalLM", "EA425"),
        ("UltravoxModel", "EA522"),
        ("MiniCPMV", "EA521"),
    ],
)
def test_what_cannot_be_captured_is_refused_with_the_reason(architecture, code) -> None:
    cls = model_class(architecture)
    before = dict(vars(cls))
    plan = BACKEND.plan(cls)
    assert isinstance(plan, Refusal)
    assert plan.reasons[0].code == code
    assert plan.reasons[0].found or plan.reasons[0].where
    assert plan.reasons[0].next_step
    with pytest.raises(AdaptationError):
        eagle_adapters.wrap(cls)
    assert dict(vars(cls)) == before


def test_the_capture_of_deepseek_is_repaired_for_the_embedding() -> None:
    plan = BACKEND.plan(model_class("KimiK25ForConditionalGeneration"))
    assert isinstance(plan, Plan)
    assert [(edit.kind, edit.name) for edit in plan.edits] == [("instrument_forward", "forward")]
    assert "hidden_states.clone() if residual is None else hidden_states + residual" in plan.edits[0].source


def test_a_release_that_is_not_supported_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(type(BACKEND), "version", lambda self: "0.20.2")
    plan = BACKEND.plan(model_class("LlamaForCausalLM"))
    assert isinstance(plan, Refusal)
    assert plan.reasons[0].code == "EA306"


def test_generated_texts_are_part_of_the_key_of_compiled_graphs() -> None:
    from vllm.config import VllmConfig

    from eagle_adapters.backends.vllm.modes import mark_generated

    plan = BACKEND.plan(model_class("Gemma3ForCausalLM"))
    assert isinstance(plan, Plan)
    config = VllmConfig()
    before = config.compute_hash()
    mark_generated(config, plan)
    assert config.compute_hash() != before
    once = config.compute_hash()
    mark_generated(config, plan)
    assert config.compute_hash() == once
