"""Two tensor-parallel ranks on real SGLang: each hands its draft whole states, also where a layer postpones its sum."""

from __future__ import annotations

import pytest
from sglang_cases import served

TWO_RANKS = {"tp_size": 2, "disable_custom_all_reduce": True}
ON_TWO_CORES = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1", "SGLANG_NCCL_SO_PATH": "/none"}
"""Cores for each rank, and no NCCL: the ranks then speak gloo."""

POSTPONES = {
    "kimi_k25": True,  # its own capture
    "mixtral": True,  # generated: the residual is kept in the batch object
    "gemma": False,  # generated: a pair that is a sum
    "cohere": False,  # generated: a pair that is no sum
    "olmo2": False,  # generated: one value
}


@pytest.mark.parametrize(("name", "postpones"), POSTPONES.items(), ids=POSTPONES)
def test_every_rank_captures_whole_states(case_of, session, tmp_path, name, postpones):
    case = case_of(name)
    draft = case.draft("boundary", (2, 4, 5))
    job = case.job(draft=draft, observe=str(tmp_path), options=TWO_RANKS, environment=ON_TWO_CORES)
    outcome = served(session.run(job))
    assert outcome.tokens == case.tokens
    assert outcome.accepted > 0
    ranks = list(tmp_path.iterdir())
    assert len(ranks) == 2
    for rank in ranks:
        case.check_states(rank)
    assert ("postponed sum" in outcome.log) == postpones
