"""Kimi-K2.5: stock vLLM has the hook and still does not serve it; with the plug-in it serves every boundary."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def plain(cases, stock):
    """The prompt served without speculation."""
    return stock.run(cases("kimi_k25").job())


@pytest.fixture(scope="module")
def right(cases, ours):
    """The prompt served with a draft made for the boundaries that it gets."""
    return ours.run(cases("kimi_k25").job(cases("kimi_k25").draft()))


def test_stock_stops_at_the_image_token(cases, stock) -> None:
    case = cases("kimi_k25")
    outcome = stock.run(case.job(case.draft()))
    assert outcome.error is not None
    assert "media_placeholder_token_id" in outcome.error


@pytest.mark.parametrize("boundaries", [(2, 4, 5), (0, 4, 8), (1, 8)], ids=str)
def test_serves_every_boundary(boundaries, cases, plain, ours, tmp_path: Path) -> None:
    case = cases("kimi_k25")
    draft = case.draft(f"draft-{boundaries}", boundaries, made_for=boundaries)
    outcome = ours.run(case.job(draft, observe=str(tmp_path)))
    assert plain.error is None
    assert outcome.error is None
    assert outcome.tokens == plain.tokens == [case.generated]
    assert outcome.accepted > 0
    case.check_states(tmp_path, boundaries)


def test_acceptance_drops_with_shifted_boundaries(cases, right, ours) -> None:
    case = cases("kimi_k25")
    shifted = ours.run(case.job(case.shifted(), environment={"EAGLE_ADAPTERS_CONVENTION": "boundary"}))
    assert shifted.error is None
    assert shifted.tokens == right.tokens
    assert shifted.workers[0]["layers"] == [[1, 3, 4]]
    assert shifted.accepted < right.accepted


def test_ids_of_layer_outputs_give_the_same_boundaries(cases, right, ours) -> None:
    case = cases("kimi_k25")
    same = ours.run(case.job(case.shifted()))
    assert same.error is None
    assert same.workers[0]["layers"] == right.workers[0]["layers"] == [[2, 4, 5]]
    assert same.accepted == right.accepted


def test_a_latent_draft_is_served(cases, ours, tmp_path: Path) -> None:
    case = cases("kimi_k25")
    draft = case.draft("latent-draft", latent=True)
    outcome = ours.run(case.job(draft, observe=str(tmp_path), environment={"VLLM_MLA_DISABLE": "0"}))
    assert outcome.error is None
    assert outcome.tokens == [case.generated]
    assert outcome.accepted > 0
    case.check_states(tmp_path)


def test_a_picture_in_the_prompt(picture_case, stock, ours, tmp_path: Path) -> None:
    case = picture_case
    assert case.reference.image.sum() == 4
    refused = stock.run(case.job(case.draft()))
    plain = stock.run(case.job())
    outcome = ours.run(case.job(case.draft(), observe=str(tmp_path)))
    shifted = ours.run(case.job(case.shifted(), environment={"EAGLE_ADAPTERS_CONVENTION": "boundary"}))
    assert refused.error is not None
    assert "media_placeholder_token_id" in refused.error
    assert plain.error is None
    assert outcome.error is None
    assert outcome.tokens == plain.tokens == shifted.tokens == [case.generated]
    case.check_states(tmp_path)
    assert outcome.accepted > shifted.accepted
