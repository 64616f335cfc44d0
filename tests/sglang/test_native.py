"""Classes with hooks of their own: one reading of the ids instead of theirs, and their limits said out loud."""

from __future__ import annotations

import pytest
from sglang_cases import STOCK, served


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
