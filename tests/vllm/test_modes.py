"""The ways an engine can run: compiled, tensor parallel, chunked, cached, batched, without EAGLE-3; what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from eagle_adapters.verify.vllm.session import Session
from eagle_adapters.verify.vllm.states import observed_states

COMPILED = {"enforce_eager": False, "compilation_config": {"custom_ops": ["none"], "cudagraph_mode": "NONE"}}


@pytest.mark.parametrize("name", ["gemma3", "kimi_k25"])
def test_compiled_forward_captures_the_same_states(name, cases, ours, tmp_path: Path) -> None:
    case = cases(name)
    outcome = ours.run(case.job(case.draft(), options={**case.options, **COMPILED}, observe=str(tmp_path)))
    assert outcome.error is None
    assert outcome.tokens == [case.generated]
    case.check_states(tmp_path)
    assert outcome.accepted > 0


@pytest.mark.parametrize("name", ["gemma3"])
def test_tensor_parallel_ranks_have_the_states_of_one_rank(name, cases, ours, tmp_path: Path) -> None:
    case = cases(name)
    options = {**case.options, "tensor_parallel_size": 2, "distributed_executor_backend": "mp"}
    outcome = ours.run(case.job(case.draft(), options=options, observe=str(tmp_path)))
    assert outcome.error is None
    assert outcome.tokens == [case.generated]
    assert len(outcome.workers) == 2
    case.check_states(tmp_path, rank=0)
    case.check_states(tmp_path, rank=1)
    first, second = (observed_states(tmp_path, case.tokens, rank) for rank in (0, 1))
    assert sorted(first) == sorted(second)
    assert all(torch.allclose(first[p], second[p], atol=1e-4) for p in first)


def test_pipeline_parallel_is_refused_before_anything_loads(cases, ours) -> None:
    case = cases("gemma3")
    options = {**case.options, "pipeline_parallel_size": 2, "distributed_executor_backend": "mp"}
    outcome = ours.run(case.job(case.draft(), options=options))
    assert outcome.error is not None
    assert "EA526" in outcome.error
    assert "--pipeline-parallel-size 1" in outcome.error


def test_chunked_prefill_prefix_cache_and_mixed_lengths(cases, stock, ours, tmp_path: Path) -> None:
    case = cases("mixtral")
    long = case.prompt + case.prompt[:0:-1] * 5
    batch = [case, *map(case.also, (case.prompt[:5], long, case.prompt[:17]))]
    options = {
        "max_num_batched_tokens": 16,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "block_size": 32,
    }
    how = {"prompts": [each.prompt for each in batch], "options": options, "repeat": 2}
    plain = stock.run(case.job(**how))
    outcome = ours.run(case.job(case.draft(), observe=str(tmp_path), **how))
    assert plain.error is None
    assert outcome.error is None
    assert outcome.tokens == plain.tokens == [each.generated for each in batch]
    assert outcome.accepted > 0
    for request, each in enumerate(batch):
        each.check_states(tmp_path, request=request)

    # The second time the blocks of the long prompt are there: only the rest of it reaches the draft, as it did before.
    first, again = (observed_states(tmp_path, batch[2].tokens, request=request) for request in (2, 2 + len(batch)))
    assert outcome.cached == min(again) > 0
    assert set(again) == {position for position in first if position >= outcome.cached}
    assert all(torch.allclose(first[p], again[p], atol=1e-4) for p in again)


def test_without_speculation_nothing_is_touched(cases, stock, logs) -> None:
    case = cases("gemma3")
    plain = stock.run(case.job())
    with Session(log=logs / "untouched.log") as fresh:
        outcome = fresh.run(case.job())
    assert outcome.error is None
    assert outcome.tokens == plain.tokens == [case.generated]
    assert outcome.workers[0]["edits"] == []
