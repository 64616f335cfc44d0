"""Kimi-K2.5 on real SGLang: as it is, and without the hooks that it did not have up to 0.5.9."""

from __future__ import annotations

import pytest
from sglang_cases import BOUNDARIES, NO_KIMI_HOOKS, PROMPTS, STOCK, failed, served

HOOKS = pytest.mark.parametrize("environment", [{}, NO_KIMI_HOOKS], ids=["own-hooks", "no-hooks"])


@pytest.fixture(scope="module")
def kimi(case_of):
    return case_of("kimi_k25")


def test_tokens_without_speculation_are_those_of_transformers(kimi):
    for prompt, tokens, greedy in zip(PROMPTS, kimi.tokens, kimi.greedy, strict=True):
        assert tokens == greedy[len(prompt) - 1 : -1]


def test_stock_refuses_it_without_hooks(kimi, session):
    draft = kimi.draft("boundary", (2, 4, 5))
    outcome = session.run(kimi.job(draft=draft, environment={**NO_KIMI_HOOKS, **STOCK}))
    failed(outcome, "KimiK25ForConditionalGeneration")
    assert "AttributeError" in outcome.log or "does not implement" in outcome.log


@HOOKS
@pytest.mark.parametrize("ids", [(2, 4, 5), (1, 3, 4), None], ids=["boundary", "layer-output", "none"])
def test_every_way_to_write_the_ids_gives_the_same_states(kimi, session, tmp_path, environment, ids):
    draft = kimi.draft(f"ids-{ids}", ids)
    outcome = served(session.run(kimi.job(draft=draft, environment=environment, observe=str(tmp_path))))
    assert outcome.tokens == kimi.tokens
    kimi.check_states(tmp_path)
    assert outcome.accepted >= 0.8 * outcome.steps
    assert f"boundaries {list(BOUNDARIES)} of 8" in outcome.log


@HOOKS
def test_tree_drafting(kimi, session, tmp_path, environment):
    draft = kimi.draft("boundary", (2, 4, 5))
    outcome = served(session.run(kimi.job(draft=draft, topk=2, environment=environment, observe=str(tmp_path))))
    assert outcome.tokens == kimi.tokens
    kimi.check_states(tmp_path)
    assert outcome.accepted >= 0.8 * outcome.steps


@HOOKS
@pytest.mark.parametrize("ids", [(1, 3, 4), (3, 5, 6)], ids=["one-lower", "one-higher"])
def test_shifted_boundaries_are_not_accepted(kimi, session, tmp_path, environment, ids):
    draft = kimi.draft(f"shifted-{ids}", ids)
    declared = {**environment, "EAGLE_ADAPTERS_CONVENTION": "boundary"}
    outcome = served(session.run(kimi.job(draft=draft, environment=declared, observe=str(tmp_path))))
    assert outcome.tokens == kimi.tokens
    kimi.check_states(tmp_path, ids)
    assert outcome.accepted <= 0.2 * outcome.steps


def test_ids_at_the_top_level_of_the_draft(kimi, session, tmp_path):
    draft = kimi.draft("top-level", (2, 4, 5), top_level_ids=True)
    outcome = served(session.run(kimi.job(draft=draft, environment=NO_KIMI_HOOKS, observe=str(tmp_path))))
    kimi.check_states(tmp_path)
    assert "ids from eagle_aux_hidden_state_layer_ids" in outcome.log


def test_ids_that_cannot_be_decided_stop_the_server(kimi, session):
    draft = kimi.draft("undecided", (1, 3, 6), made_for=(2, 4, 7))
    failed(session.run(kimi.job(draft=draft)), "EA005", "EAGLE_ADAPTERS_CONVENTION")


def test_over_http_with_processes_as_a_user_starts_them(kimi, session, tmp_path):
    draft = kimi.draft("boundary", (2, 4, 5))
    job = kimi.job(draft=draft, environment=NO_KIMI_HOOKS, observe=str(tmp_path), http=True, spawn=True)
    outcome = served(session.run(job))
    assert outcome.tokens == kimi.tokens
    kimi.check_states(tmp_path)


def test_the_log_of_these_tests_tells_generated_methods(kimi, session):
    outcome = served(session.run(kimi.job(draft=kimi.draft("boundary", (2, 4, 5)), environment=NO_KIMI_HOOKS)))
    assert "KimiK25ForConditionalGeneration.set_eagle3_layers_to_capture" in outcome.log


@pytest.mark.parametrize("name", ["kimi_k25", "mixtral"])
def test_a_server_without_speculation_is_left_alone(case_of, session, name):
    case = case_of(name)
    stock = served(session.run(case.job(environment=STOCK)))
    plain = served(session.run(case.job()))
    assert plain.tokens == stock.tokens == case.tokens
    assert "EAGLE-3" not in plain.log
    (said,) = [line for line in plain.log.splitlines() if "generated methods of" in line]
    assert said.endswith(": none")
