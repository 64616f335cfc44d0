"""Classes with hooks of their own: one reading of the ids instead of theirs, and their limits said out loud."""

from __future__ import annotations

import pytest
from sglang_cases import BOUNDARIES, PROMPTS, STOCK, served

from eagle_adapters.verify.compare import relative_error
from eagle_adapters.verify.served import split_states
from eagle_adapters.verify.sglang.states import observed_states

NO_INNER_HOOK = {"STRIP": "sglang.srt.models.llama:LlamaForCausalLM.set_eagle3_layers_to_capture"}
"""Llama-4 inherits its hook from there."""


@pytest.mark.parametrize("ids", [(2, 4, 5), (1, 3, 4)], ids=["boundary", "layer-output"])
def test_one_reading_of_the_ids(case_of, session, tmp_path, ids):
    case = case_of("llama")
    draft = case.draft(f"ids-{ids}", ids)
    outcome = served(session.run(case.job(draft=draft, observe=str(tmp_path))))
    assert outcome.tokens == case.tokens
    case.check_states(tmp_path)
    assert outcome.accepted > 0


def test_stock_reads_boundary_ids_one_layer_off(case_of, session, tmp_path):
    case = case_of("llama")
    draft = case.draft("ids-(2, 4, 5)", (2, 4, 5))
    served(session.run(case.job(draft=draft, observe=str(tmp_path), environment=STOCK)))
    case.check_states(tmp_path, (3, 5, 6))


# Natively the first two leave boundary N out in silence, the third runs over the end of its list of layers.
@pytest.mark.parametrize("name", ["llama", "kimi_k25", "qwen3_moe"])
def test_a_capture_of_its_own_is_completed_by_the_last_boundary(case_of, session, tmp_path, name):
    case = case_of(name)
    draft = case.draft("ends", (0, 4, 8), made_for=(0, 4, 8))
    outcome = served(session.run(case.job(draft=draft, observe=str(tmp_path))))
    assert outcome.tokens == case.tokens
    case.check_states(tmp_path, (0, 4, 8))


def test_the_ends_of_an_instrumented_decoder(case_of, session, tmp_path):
    case = case_of("mixtral")
    draft = case.draft("ends", (0, 4, 8), made_for=(0, 4, 8))
    outcome = served(session.run(case.job(draft=draft, observe=str(tmp_path))))
    assert outcome.tokens == case.tokens
    case.check_states(tmp_path, (0, 4, 8))


def test_a_capture_that_leaves_the_residual_out_is_replaced(case_of, session, tmp_path):
    case = case_of("gemma3_text")
    stock, adapted = tmp_path / "stock", tmp_path / "adapted"
    stock.mkdir()
    served(session.run(case.job(draft=case.draft("output", (1, 3, 4)), observe=str(stock), environment=STOCK)))
    for prompt, states in zip(PROMPTS, case.states, strict=True):
        for found in split_states(observed_states(stock, prompt), BOUNDARIES).values():
            assert min(relative_error(found, state[: len(found)]) for state in states.values()) > 0.01
    for ids in ((2, 4, 5), (1, 3, 4)):
        seen = adapted / str(ids)
        seen.mkdir(parents=True)
        outcome = served(session.run(case.job(draft=case.draft(f"ids-{ids}", ids), observe=str(seen))))
        assert outcome.tokens == case.tokens
        case.check_states(seen)


def test_stock_says_nothing_of_an_inner_model_without_the_hook(case_of, session):
    case = case_of("llama4")
    draft = case.draft("boundary", (2, 4, 5))
    outcome = served(session.run(case.job(draft=draft, environment={**NO_INNER_HOOK, **STOCK})))
    assert outcome.drafted > 0
    assert outcome.accepted == 0
    assert "does not implement" not in outcome.log


# On CPU sglang 0.5.23 has no experts that weight their input, and drops the rotary embedding of models/llama4.py, which
# expects a kernel that works in place: the target has dense layers without rotary embedding only.
@pytest.mark.parametrize("environment", [{}, NO_INNER_HOOK], ids=["inner-hook", "no-inner-hook"])
@pytest.mark.parametrize("ids", [(2, 4, 5), (1, 3, 4)], ids=["boundary", "layer-output"])
def test_a_wrapper_whose_setter_may_do_nothing(case_of, session, tmp_path, environment, ids):
    case = case_of("llama4")
    draft = case.draft(f"ids-{ids}", ids)
    outcome = served(session.run(case.job(draft=draft, environment=environment, observe=str(tmp_path))))
    assert outcome.tokens == case.tokens
    case.check_states(tmp_path)
    assert outcome.accepted > 0
