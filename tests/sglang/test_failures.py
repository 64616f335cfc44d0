"""What cannot be missed on the engine: a target that was not adapted, and one that nobody has verified."""

from __future__ import annotations

import pytest
from sglang_cases import KIMI, STOCK, failed, served

from eagle_adapters.contract import Engine

BROKEN = {"STRIP": "eagle_adapters.backends.sglang:SGLangBackend.plan"}
"""The adapter itself fails, in a way that nobody foresaw."""


@pytest.mark.parametrize("name", ["arcee", "llama"], ids=["without-hooks", "with-hooks"])
def test_a_failed_adaptation_is_raised_by_the_hook_and_logged(case_of, session, name):
    case = case_of(name)
    outcome = session.run(case.job(draft=case.draft("boundary", (2, 4, 5)), environment=BROKEN))
    failed(outcome, "ForCausalLM cannot be served with EAGLE-3", "EA999", "no attribute 'plan'", "next: ")
    assert "AdaptationError: EA999" in outcome.log.partition("Scheduler hit an exception")[2]


@pytest.mark.parametrize(("name", "warned"), [("arcee", True), ("kimi_k25", False)])
def test_a_class_that_nobody_verified_is_said_to_be_so(case_of, session, name, warned):
    case = case_of(name)
    outcome = served(session.run(case.job(draft=case.draft("boundary", (2, 4, 5)))))
    lines = [line for line in outcome.log.splitlines() if "EA406" in line]
    assert len(lines) == warned
    assert all("eagle-adapters verify" in line and f"--engine {Engine.SGLANG}" in line for line in lines)


# Each replica is a scheduler of its own, started by the data-parallel controller.
def test_every_replica_of_a_data_parallel_server_is_adapted(case_of, session, tmp_path):
    case = case_of("kimi_k25")
    hooks = f"{KIMI}.set_eagle3_layers_to_capture,{KIMI}.get_embed_and_head"
    job = case.job(
        draft=case.draft("boundary", (2, 4, 5)),
        observe=str(tmp_path),
        options={"dp_size": 2},
        environment={"STRIP": hooks, "SGLANG_CPU_OMP_THREADS_BIND": "0|1", "SGLANG_NCCL_SO_PATH": "/none"},
    )
    outcome = served(session.run(job))
    assert outcome.tokens == case.tokens
    case.check_states(tmp_path)
    assert outcome.log.count("boundaries [2, 4, 5] of 8") == 2


def test_switched_off_the_same_draft_gets_what_stock_gives(case_of, session, tmp_path):
    case = case_of("llama")
    draft = case.draft("output", (1, 3, 4))
    outcome = served(session.run(case.job(draft=draft, observe=str(tmp_path), environment=STOCK)))
    assert outcome.tokens == case.tokens
    case.check_states(tmp_path)  # SGLang's own reading of these ids is the same here
    assert "EAGLE-3 in" not in outcome.log
