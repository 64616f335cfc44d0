"""The one numbering and its conversions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_adapters.boundaries import (
    Boundary,
    Convention,
    ConventionSource,
    check_boundaries,
    default_boundaries,
    read_ids,
    to_boundaries,
    to_ids,
)
from eagle_adapters.errors import BoundaryError

conventions = st.sampled_from(Convention)


@st.composite
def depth_and_boundaries(draw: st.DrawFn) -> tuple[int, list[int]]:
    """N, and distinct boundaries 0..N in any order."""
    n = draw(st.integers(1, 90))
    return n, draw(st.lists(st.integers(0, n), min_size=1, max_size=5, unique=True))


def outcome(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    """What a function returns, or the code of the error it raises."""
    try:
        return function(*arguments), None
    except BoundaryError as error:
        return None, error.code


@given(depth_and_boundaries(), conventions)
def test_what_is_written_reads_back_the_same(target: tuple[int, list[int]], convention: Convention) -> None:
    n, wanted = target
    ids, code = outcome(to_ids, wanted, convention, n)
    assert code is None or (code == "EA003" and convention is not Convention.BOUNDARY)
    assert code is not None or list(to_boundaries(ids, convention, n)) == wanted


@given(st.integers(1, 90), st.lists(st.integers(-2, 95), max_size=5), conventions)
def test_ids_are_read_whole_or_refused(n: int, ids: list[int], convention: Convention) -> None:
    read, code = outcome(to_boundaries, ids, convention, n)
    assert code in (None, "EA001", "EA002")
    if code is not None:
        return
    assert len(read) == len(ids) == len(set(read))
    assert all(0 <= b <= n for b in read)
    shifts = {b - i for b, i in zip(read, ids, strict=True)}
    assert shifts <= {0} or shifts <= {1}, "order and distances stay as they were written"


@given(st.integers(1, 90), st.lists(st.integers(0, 90), min_size=1, max_size=5))
def test_reading_decides_by_rule_or_not_at_all(n: int, ids: list[int]) -> None:
    reading, code = outcome(read_ids, ids, n)
    assert code in (None, "EA001", "EA002")
    if code is not None:
        return
    json.dumps(reading.as_dict())
    if reading.decided:
        assert reading.convention is not None
        assert reading.boundaries == to_boundaries(ids, reading.convention, n)
    else:
        assert reading.source is ConventionSource.UNDECIDED
        with pytest.raises(BoundaryError, match="EA005"):
            reading.require()


@pytest.mark.parametrize(
    ("ids", "n", "boundaries", "source"),
    [
        (None, 61, [2, 30, 58], ConventionSource.NO_IDS),
        ([2, 30, 58], 61, [2, 30, 58], ConventionSource.DEFAULT_TRIPLE),
        ([1, 29, 57], 61, [2, 30, 58], ConventionSource.DEFAULT_TRIPLE),
        ([1, 46, 90], 94, [2, 47, 91], ConventionSource.DEFAULT_TRIPLE),
        ([1, 17, 32], 36, [2, 18, 33], ConventionSource.DEFAULT_TRIPLE),
        ([24, 30, 36], 36, [24, 30, 36], ConventionSource.LAST_AMONG_IDS),
        ([4, 20, 40], 45, None, ConventionSource.UNDECIDED),
        ([0, 5], 9, None, ConventionSource.UNDECIDED),
    ],
)
def test_published_ids(ids: list[int] | None, n: int, boundaries: list[int] | None, source: ConventionSource) -> None:
    reading = read_ids(ids, n)
    assert reading.source is source
    assert (None if reading.boundaries is None else list(reading.boundaries)) == boundaries


def test_an_undecided_reading_lists_both_candidates() -> None:
    reading = read_ids([4, 20, 40], 45)
    assert {c: list(b) for c, b in reading.candidates.items()} == {
        Convention.BOUNDARY: [4, 20, 40],
        Convention.LAYER_OUTPUT: [5, 21, 41],
    }
    with pytest.raises(BoundaryError, match="declare it"):
        reading.require()


def test_the_user_outranks_the_registry_and_the_registry_the_rules() -> None:
    by_user = read_ids([1, 29, 57], 61, declared=Convention.BOUNDARY, registered=Convention.LAYER_OUTPUT)
    by_registry = read_ids([4, 20, 40], 45, registered=Convention.LAYER_OUTPUT)
    assert (list(by_user.require()), by_user.source) == ([1, 29, 57], ConventionSource.USER)
    assert (list(by_registry.require()), by_registry.source) == ([5, 21, 41], ConventionSource.REGISTRY)


def test_a_declared_convention_that_cannot_hold_is_an_error() -> None:
    with pytest.raises(BoundaryError, match="EA001"):
        read_ids([24, 30, 36], 36, declared=Convention.LAYER_OUTPUT)


@pytest.mark.parametrize("n", [1, 5, 6])
def test_shallow_targets_have_no_defaults(n: int) -> None:
    with pytest.raises(BoundaryError, match="EA004"):
        default_boundaries(n)


@given(st.integers(7, 200))
def test_defaults_are_distinct_and_ascending(n: int) -> None:
    first, middle, last = default_boundaries(n)
    assert 0 < first < middle < last < n


@pytest.mark.parametrize("bad", [-1, True, 1.0, "2", None])
def test_a_boundary_is_a_whole_number_from_zero_on(bad: object) -> None:
    with pytest.raises(BoundaryError, match="EA001"):
        Boundary(bad)  # type: ignore[arg-type]


def test_a_shifted_boundary_is_no_boundary_any_more() -> None:
    assert type(Boundary(3) + 1) is int
    assert json.dumps([Boundary(3)]) == "[3]"
    assert (repr(Boundary(3)), str(Boundary(3))) == ("Boundary(3)", "3")


def test_range_and_duplicates() -> None:
    assert check_boundaries([8, 0, 4], 8) == (8, 0, 4)
    with pytest.raises(BoundaryError, match="EA002"):
        check_boundaries([3, 3], 8)
    with pytest.raises(BoundaryError, match="EA001"):
        check_boundaries([9], 8)
