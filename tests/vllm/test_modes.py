"""The ways an engine can run: compiled, tensor parallel, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from eagle_adapters.verify.vllm.reference import match_states, observed_states

BOUNDARIES = (2, 4, 5)

COMPILED = {"enforce_eager": False, "compilation_config": {"custom_ops": ["none"], "cudagraph_mode": "NONE"}}


@pytest.mark.parametrize("name", ["gemma3"])
def test_compiled_forward_captures_the_same_states(name, cases, ours, tmp_path: Path) -> None:
    case = cases(name)
    outcome = ours.run(case.job(case.draft, options={**case.options, **COMPILED}, observe=str(tmp_path)))
    assert outcome.error is None
    assert outcome.tokens == [case.generated]
    matches = match_states(observed_states(tmp_path, case.reference.tokens), case.reference.states, BOUNDARIES)
    assert all(m.nearest == m.boundary and m.error < 1e-3 and m.margin > 20 for m in matches)
    assert outcome.accepted > 0


@pytest.mark.parametrize("name", ["gemma3"])
def test_tensor_parallel_ranks_have_the_states_of_one_rank(name, cases, ours, tmp_path: Path) -> None:
    case = cases(name)
    options = {**case.options, "tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    outcome = ours.run(case.job(case.draft, options=options, observe=str(tmp_path)))
    assert outcome.error is None
    assert outcome.tokens == [case.generated]
    assert len(outcome.workers) == 2
    first = observed_states(tmp_path, case.reference.tokens, rank=0)
    second = observed_states(tmp_path, case.reference.tokens, rank=1)
    matches = match_states(first, case.reference.states, BOUNDARIES)
    assert all(m.nearest == m.boundary and m.error < 1e-3 and m.margin > 20 for m in matches)
    assert sorted(first) == sorted(second)
    assert all(torch.allclose(first[p], second[p], atol=1e-4) for p in first)


def test_pipeline_parallel_is_refused_before_anything_loads(cases, ours) -> None:
    case = cases("gemma3")
    options = {**case.options, "pipeline_parallel_size": 2, "distributed_executor_backend": "mp"}
    outcome = ours.run(case.job(case.draft, options=options))
    assert outcome.error is not None
    assert "EA526" in outcome.error
    assert "--pipeline-parallel-size 1" in outcome.error
