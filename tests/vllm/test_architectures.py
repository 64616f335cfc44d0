"""Every shape of target that stock vLLM refuses: it is served, with the right tokens and the right states."""

from __future__ import annotations

from pathlib import Path

import pytest

BOUNDARIES = (2, 4, 5)

REFUSED = "does not support EAGLE3 interface"
TARGETS = {
    # the pair is a sum
    "gemma3": REFUSED,
    "mixtral": REFUSED,
    "nemotron": REFUSED,
    # the pair is not a sum
    "cohere2": REFUSED,
    "exaone4": REFUSED,
    "stablelm": REFUSED,
    # a single value
    "gpt2": "'model' attribute",
    "falcon": "'model' attribute",
    "gptj": "'model' attribute",
    # the decoder captures, the wrapper lacks the hook
    "aria": "'model' attribute",
}
"""Case -> what stock vLLM 0.32.0 says when it is asked to serve it with EAGLE-3."""


@pytest.mark.parametrize("name", TARGETS)
def test_stock_refuses(name, cases, stock) -> None:
    outcome = stock.run(cases(name).job(cases(name).draft()))
    assert outcome.error is not None
    assert TARGETS[name] in outcome.error


@pytest.mark.parametrize("name", TARGETS)
def test_serves_the_right_states(name, cases, stock, ours, tmp_path: Path) -> None:
    case = cases(name)
    plain = stock.run(case.job())
    assert plain.error is None
    assert plain.tokens == [case.generated], "the tiny checkpoint is not the model of the reference"

    outcome = ours.run(case.job(case.draft(), observe=str(tmp_path)))
    assert outcome.error is None
    assert outcome.tokens == plain.tokens
    assert outcome.workers[0]["layers"][0] == list(BOUNDARIES)
    case.check_states(tmp_path)
    assert outcome.accepted > 0

    shifted = ours.run(case.job(case.shifted(), environment={"EAGLE_ADAPTERS_CONVENTION": "boundary"}))
    assert shifted.error is None
    assert shifted.tokens == plain.tokens
    assert shifted.workers[0]["layers"][0] == [b - 1 for b in BOUNDARIES]
    assert shifted.accepted / shifted.drafted < outcome.accepted / outcome.drafted
