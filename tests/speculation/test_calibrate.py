"""Calibration with the trained pair: every way to write the ids is found out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from eagle_adapters.boundaries import Boundary, Convention, to_ids
from eagle_adapters.errors import BoundaryError, UsageError
from eagle_adapters.speculation.accept import bootstrap, measure, summarise
from eagle_adapters.speculation.calibrate import Calibration, Candidate, calibrate, candidates, compare
from eagle_adapters.speculation.drafter import Drafter, load_drafter
from eagle_adapters.speculation.recording import Recording, record, replay
from eagle_adapters.speculation.speculate import speculate
from eagle_adapters.testing.pair import Pair, prompts

LAYERS = 8


@pytest.mark.pair
def test_acceptance_on_held_out_text_is_worth_the_name(target: Any, drafter: Any) -> None:
    result = measure(target, drafter, prompts(24, 32), steps=3, max_new_tokens=32, batch=24)
    assert result.length.mean >= 2.2
    assert result.length.low > 2.0
    assert 1 > result.rates[0] > result.rates[1] > result.rates[2] > 0
    assert result.length.mean == pytest.approx(1 + sum(result.rates))
    assert result.tokens_per_pass > 1.9


@pytest.fixture(scope="module")
def recordings(target: Any) -> list[Recording]:
    """Sampled text with the states of every boundary."""
    boundaries = list(range(LAYERS + 1))
    return record(target, prompts(40), boundaries, max_new_tokens=40, temperature=1.0, batch=40)


@pytest.fixture(scope="module")
def calibrated(drafter: Drafter, recordings: list[Recording]) -> Callable[[tuple[int, ...] | None], Calibration]:
    """The calibration of the trained draft with other ids written into it, each measured once."""

    @cache
    def of(ids: tuple[int, ...] | None) -> Calibration:
        return compare(drafter, recordings, candidates(ids, LAYERS))

    return of


@pytest.mark.pair
@pytest.mark.parametrize("convention", [*Convention, None])
def test_the_right_reading_is_found_in_every_convention(
    pair: Pair, calibrated: Callable[[tuple[int, ...] | None], Calibration], convention: Convention | None
) -> None:
    result = calibrated(None if convention is None else to_ids(pair.boundaries, convention, LAYERS))
    assert result.decided, result.verdict
    assert result.best is not None
    assert result.best.boundaries == pair.boundaries
    if convention is not None:
        assert convention in result.best.conventions
    assert all(ranked.behind is not None and ranked.behind.low > 0 for ranked in result.ranking[1:])


@pytest.mark.pair
def test_neighbours_cost_acceptance_in_proportion_to_their_distance(
    pair: Pair, drafter: Drafter, recordings: list[Recording]
) -> None:
    shifted = [
        Candidate(tuple(Boundary(b + shift) for b in pair.boundaries), (f"{shift:+d}",)) for shift in range(-2, 4)
    ]
    result = compare(drafter, recordings, shifted)
    means = {ranked.candidate.names[0]: ranked.length.mean for ranked in result.ranking}
    assert means["-2"] < means["-1"] < means["+0"] > means["+1"] > means["+2"] > means["+3"]


@pytest.mark.pair
def test_expected_acceptance_is_that_of_sampled_decoding(target: Any, pair: Pair, drafter: Any) -> None:
    """The replay's expectation at the first place after a prompt against the mean of many sampled rounds."""
    import torch

    prompt, rows, steps = list(b"    return self."), 200, 3
    recordings = record(target, [prompt] * rows, pair.boundaries, max_new_tokens=steps + 2, temperature=1.0, batch=200)
    expected = torch.cat([row[:1] for r in recordings for row in replay(drafter, r, pair.boundaries, steps)])
    live = speculate(
        target,
        drafter,
        [prompt] * rows,
        steps=steps,
        max_new_tokens=2,
        temperature=1.0,
        generator=torch.Generator().manual_seed(7),
    )
    sampled = torch.tensor([float(row[0]) for row in live.accepted])
    spread = float((expected.var() / rows + sampled.var() / rows).sqrt())
    assert len(expected) == rows
    assert abs(float(expected.mean() - sampled.mean())) < 4 * spread
    assert float(expected.std()) < float(sampled.std())


@pytest.mark.pair
def test_equal_readings_leave_it_undecided(target: Any, pair: Pair, drafter: Any) -> None:
    twice = [Candidate(pair.boundaries, ("one",)), Candidate(pair.boundaries, ("two",))]
    result = calibrate(target, drafter, prompts(8), readings=twice, max_new_tokens=24)
    assert not result.decided
    assert result.best is None
    assert "cannot tell" in result.verdict


@pytest.mark.pair
def test_a_draft_of_noise_leaves_it_undecided(target: Any, drafter: Any) -> None:
    import torch

    noise = load_drafter(drafter.spec, target)
    with torch.no_grad():
        for parameter in noise.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())) / 8
            )
    result = calibrate(target, noise, prompts(8), max_new_tokens=24)
    assert not result.decided
    assert result.as_dict()["boundaries"] is None


@pytest.mark.pair
def test_too_little_text_is_refused(target: Any, drafter: Any) -> None:
    with pytest.raises(UsageError, match="EA806"):
        calibrate(target, drafter, prompts(1), max_new_tokens=24)


def test_conventions_and_neighbours_are_tried_once_each() -> None:
    found = {tuple(map(int, c.boundaries)): c for c in candidates((1, 3, 4), LAYERS)}
    assert set(found) == {(1, 3, 4), (2, 4, 5), (0, 2, 3), (3, 5, 6)}
    assert set(found[2, 4, 5].conventions) == {Convention.LAYER_OUTPUT, Convention.FIRST_IS_ONE, Convention.UNLESS_LAST}
    assert found[2, 4, 5].names[-1] == "boundary +1"
    assert found[1, 3, 4].conventions == (Convention.BOUNDARY,)


def test_readings_out_of_range_are_left_out() -> None:
    assert {tuple(map(int, c.boundaries)) for c in candidates((0, 4, 8), LAYERS)} == {(0, 4, 8)}
    with pytest.raises(BoundaryError, match="EA001"):
        candidates((3, 4, 20), LAYERS)


def test_a_draft_without_ids_has_the_usual_triples() -> None:
    found = [tuple(map(int, c.boundaries)) for c in candidates(None, 61)]
    assert found[:3] == [(2, 30, 58), (1, 29, 57), (3, 31, 59)]


def test_rates_and_length_are_those_of_the_counts() -> None:
    result = summarise([[3, 0, 1], [2]], steps=3, new_tokens=11, target_passes=6)
    assert result.rates == (0.75, 0.5, 0.25)
    assert result.length.mean == pytest.approx(2.5)
    assert result.tokens_per_pass == pytest.approx(11 / 6)
    with pytest.raises(UsageError, match="EA806"):
        summarise([[], []], steps=3, new_tokens=2, target_passes=2)


def test_the_interval_covers_the_mean_and_narrows_with_data() -> None:
    few, many = (bootstrap([(2.0 + (k % 3), 1.0) for k in range(n)]) for n in (9, 900))
    assert few.low < few.mean < few.high
    assert many.high - many.low < (few.high - few.low) / 5
