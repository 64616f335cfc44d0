"""A configuration beyond what a class's code allows is refused before weights load, on vLLM's own configurations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import CompilationConfig, ParallelConfig
from vllm.model_executor.models import ModelRegistry

from eagle_adapters.backends.vllm import BACKEND
from eagle_adapters.backends.vllm.modes import check_class
from eagle_adapters.backends.vllm.planning import _limits
from eagle_adapters.codegen.instrument import Instrumented
from eagle_adapters.codegen.streams import Evidence, Residual, StreamForm
from eagle_adapters.errors import AdaptationError
from eagle_adapters.plan import Plan, Refusal

BOUNDARIES = [2, 4, 5]


def engine(dtype: torch.dtype = torch.bfloat16, *, draft: str = "/nowhere", v2: bool = False, **parallel: Any) -> Any:
    """The parts of a `VllmConfig` that limits are compared with: vLLM's own, but for the model."""
    settings = ParallelConfig()
    for name, value in parallel.items():
        setattr(settings, name, value)
    return SimpleNamespace(
        parallel_config=settings,
        compilation_config=CompilationConfig(),
        model_config=SimpleNamespace(dtype=dtype, get_total_num_hidden_layers=lambda: 8),
        speculative_config=SimpleNamespace(draft_model_config=SimpleNamespace(model=draft)),
        use_v2_model_runner=v2,
    )


def planned(architecture: str) -> tuple[type, Plan]:
    cls = ModelRegistry._try_load_model_cls(architecture)
    assert cls is not None
    plan = BACKEND.plan(cls)
    assert isinstance(plan, Plan)
    return cls, plan


@pytest.mark.parametrize(
    "architecture",
    ["DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "AXK1ForCausalLM", "PanguUltraMoEForCausalLM"],
)
def test_float16_is_refused_where_the_layers_scale_the_stream(architecture) -> None:
    cls, plan = planned(architecture)
    check_class(engine(torch.bfloat16), cls, plan, BOUNDARIES)
    with pytest.raises(AdaptationError, match="--dtype bfloat16") as caught:
        check_class(engine(torch.float16), cls, plan, BOUNDARIES)
    assert caught.value.code == "EA524"
    assert ".py:" in str(caught.value.diagnostics[0].found)


def test_float16_is_served_where_nothing_scales() -> None:
    cls, plan = planned("Gemma3ForCausalLM")
    check_class(engine(torch.float16), cls, plan, BOUNDARIES)


@pytest.mark.parametrize(
    ("safe", "code", "parallel"),
    [
        ("tensor_parallel_safe", "EA523", {"tensor_parallel_size": 2}),
        (
            "sequence_parallel_safe",
            "EA532",
            {"tensor_parallel_size": 2, "data_parallel_size": 2, "enable_expert_parallel": True},
        ),
    ],
)
def test_what_the_layers_code_does_not_allow_is_refused(safe, code, parallel) -> None:
    residual = Residual(StreamForm.SINGLE, (Evidence("some.py:7", "it says so"),), **{safe: False})
    text = Instrumented("forward", "", "", residual, relay=False, pipeline_safe=True)
    limits = _limits(torch.nn.Module, text)
    assert [limit.code for limit in limits] == [code]
    plan = Plan("some:Class", "vllm", "0.32.0", None, (), tuple(limits))
    check_class(engine(), torch.nn.Module, plan, BOUNDARIES)
    with pytest.raises(AdaptationError, match="it says so") as caught:
        check_class(engine(**parallel), torch.nn.Module, plan, BOUNDARIES)
    assert caught.value.code == code
    assert caught.value.diagnostics[0].next_step


@pytest.mark.parametrize(
    "architecture", ["Gemma3ForCausalLM", "GraniteMoeForCausalLM", "LlavaForConditionalGeneration"]
)
def test_pipeline_ranks_are_refused_for_every_hook_of_ours(architecture) -> None:
    cls, plan = planned(architecture)
    with pytest.raises(AdaptationError, match="--pipeline-parallel-size 1") as caught:
        check_class(engine(pipeline_parallel_size=2, v2=True), cls, plan, BOUNDARIES)
    assert caught.value.code == "EA526"


def test_pipeline_ranks_are_left_to_a_native_class() -> None:
    cls, plan = planned("LlamaForCausalLM")
    check_class(engine(pipeline_parallel_size=2, v2=True), cls, plan, BOUNDARIES)


def test_sharded_graphs_are_refused_in_the_releases_that_have_them() -> None:
    cls, plan = planned("Gemma3ForCausalLM")
    config = engine()
    config.compilation_config = SimpleNamespace(pass_config=SimpleNamespace(enable_sp=True))
    with pytest.raises(AdaptationError, match="enable_sp"):
        check_class(config, cls, plan, BOUNDARIES)


@pytest.mark.parametrize(("boundaries", "refused"), [([0, 4, 8], True), ([2, 4, 8], False)])
def test_a_boundary_out_of_reach_is_refused(boundaries, refused) -> None:
    cls, plan = planned("TransformersForCausalLM")
    if refused:
        with pytest.raises(AdaptationError, match="never delivers boundary 0"):
            check_class(engine(), cls, plan, boundaries)
    else:
        check_class(engine(), cls, plan, boundaries)


@pytest.mark.parametrize("architecture", ["MambaForCausalLM", "JambaForCausalLM", "GraniteMoeHybridForCausalLM"])
def test_a_recurrent_state_is_refused(architecture) -> None:
    cls = ModelRegistry._try_load_model_cls(architecture)
    assert cls is not None
    plan = BACKEND.plan(cls)
    assert isinstance(plan, Refusal)
    assert plan.reasons[0].code == "EA521"
    assert "recurrent state" in plan.reasons[0].message
