"""The one layer numbering of this library, and the border crossings to every other one.

*Boundary b* is the residual stream after b decoder layers, before any final norm: 0 is the embedding output (after any
embedding scaling), N the output of the last layer of N. Foreign layer ids are converted here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import BoundaryError


class Boundary(int):
    """A boundary number: an `int` that is never negative. Arithmetic gives plain ints, so a shift is always visible."""

    __slots__ = ()

    def __new__(cls, value: int) -> Boundary:
        """Make a boundary.

        Raises:
            BoundaryError: EA001, the value is negative or not an integer.
        """
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            _fail("EA001", f"{value!r} is not a boundary", expected="an integer 0 or greater", found=repr(value))
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Boundary({int(self)})"

    def __str__(self) -> str:
        return str(int(self))


class Convention(StrEnum):
    """What a layer id means to the one who wrote it."""

    BOUNDARY = "boundary"
    """id k is boundary k: EAGLE reference code, vLLM, speculators, AQ-MedAI Kimi-K2/K2.5 drafts."""
    LAYER_OUTPUT = "layer_output"
    """id k is the output of layer k, boundary k + 1: SpecForge, AngelSlim, TensorRT-LLM, most SGLang classes."""
    FIRST_IS_ONE = "first_is_one"
    """`layer_output` if the first id is 1, else `boundary` (sglang 0.5.23, models/deepseek_v2.py, glm4_moe_lite.py)."""
    UNLESS_LAST = "unless_last"
    """`boundary` if N is the highest id, else `layer_output` (sglang 0.5.23, models/gpt_oss.py)."""


class ConventionSource(StrEnum):
    """Where the convention of a draft's ids was taken from, strongest first."""

    USER = "user"
    REGISTRY = "registry"
    DEFAULT_TRIPLE = "default_triple"
    LAST_AMONG_IDS = "last_among_ids"
    NO_IDS = "no_ids"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a draft's layer ids are read for a target of `num_layers` layers.

    Attributes:
        ids: the ids as written, or None when the draft carries none.
        num_layers: N of the target.
        convention: the convention, or None while it is undecided.
        source: why this convention.
        boundaries: the effective boundaries in the order of the ids, or None while undecided.
        candidates: every plain convention under which the ids are in range, with the boundaries it would give.
    """

    ids: tuple[int, ...] | None
    num_layers: int
    convention: Convention | None
    source: ConventionSource
    boundaries: tuple[Boundary, ...] | None
    candidates: Mapping[Convention, tuple[Boundary, ...]]

    @property
    def decided(self) -> bool:
        """Whether the boundaries are known."""
        return self.boundaries is not None

    def require(self) -> tuple[Boundary, ...]:
        """The boundaries.

        Raises:
            BoundaryError: EA005, the convention is undecided.
        """
        if self.boundaries is None:
            options = "; ".join(f"{c} gives {list(map(int, b))}" for c, b in self.candidates.items())
            _fail(
                "EA005",
                f"the layer ids {list(self.ids or ())} can be read in more than one way for {self.num_layers} layers",
                expected="a declared convention",
                found=options,
                next_step="declare it (convention='boundary' or 'layer_output'), or measure it with calibrate",
            )
        return self.boundaries

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "ids": None if self.ids is None else list(self.ids),
            "num_layers": self.num_layers,
            "convention": self.convention,
            "source": self.source,
            "boundaries": None if self.boundaries is None else [int(b) for b in self.boundaries],
            "candidates": {str(c): [int(b) for b in bs] for c, bs in self.candidates.items()},
        }

    def __str__(self) -> str:
        ids = "none" if self.ids is None else list(self.ids)
        boundaries = "undecided" if self.boundaries is None else [int(b) for b in self.boundaries]
        how = f"ids {ids}, convention {self.convention or 'undecided'}, source {self.source}"
        return f"boundaries {boundaries} of {self.num_layers} ({how})"


def _fail(
    code: str, message: str, *, expected: str | None = None, found: str | None = None, next_step: str | None = None
) -> NoReturn:
    raise BoundaryError(Diagnostic(code, message, expected=expected, found=found, next_step=next_step))


def _shift_none(ids: Sequence[int], num_layers: int) -> int:
    return 0


def _shift_one(ids: Sequence[int], num_layers: int) -> int:
    return 1


def _shift_first_is_one(ids: Sequence[int], num_layers: int) -> int:
    return 1 if ids and ids[0] == 1 else 0


def _shift_unless_last(ids: Sequence[int], num_layers: int) -> int:
    return 0 if num_layers in ids else 1


_SHIFT: dict[Convention, Callable[[Sequence[int], int], int]] = {
    Convention.BOUNDARY: _shift_none,
    Convention.LAYER_OUTPUT: _shift_one,
    Convention.FIRST_IS_ONE: _shift_first_is_one,
    Convention.UNLESS_LAST: _shift_unless_last,
}


def check_boundaries(boundaries: Iterable[int], num_layers: int) -> tuple[Boundary, ...]:
    """The same numbers as boundaries of a target of `num_layers` layers, in the same order.

    Raises:
        BoundaryError: EA001 out of 0..N, EA002 given twice.
    """
    out: list[Boundary] = []
    for number in boundaries:
        boundary = Boundary(number)
        if boundary > num_layers:
            _fail("EA001", f"boundary {number} is out of range", expected=f"0..{num_layers}", found=str(number))
        if boundary in out:
            _fail("EA002", f"boundary {number} is given twice", found=str([int(b) for b in [*out, boundary]]))
        out.append(boundary)
    return tuple(out)


def to_boundaries(ids: Sequence[int], convention: Convention, num_layers: int) -> tuple[Boundary, ...]:
    """Read layer ids written in `convention` for a target of `num_layers` layers; order is kept.

    Raises:
        BoundaryError: EA001 out of range, EA002 given twice.
    """
    for number in ids:
        if isinstance(number, bool) or not isinstance(number, int):
            _fail("EA001", f"{number!r} is not a layer id", expected="an integer", found=type(number).__name__)
    shift = _SHIFT[convention](ids, num_layers)
    try:
        return check_boundaries([number + shift for number in ids], num_layers)
    except BoundaryError as error:
        cause = error.diagnostics[0]
        _fail(
            cause.code,
            f"the layer ids {list(ids)} read as {convention} do not fit {num_layers} layers: {cause.message}",
            expected=cause.expected or "every boundary once",
            found=cause.found or str(list(ids)),
        )


def to_ids(boundaries: Sequence[int], convention: Convention, num_layers: int) -> tuple[int, ...]:
    """Write boundaries as layer ids of `convention`, so that `to_boundaries` reads the very same back.

    Raises:
        BoundaryError: EA001, EA002 as `check_boundaries`; EA003 the convention has no ids for these boundaries.
    """
    wanted = check_boundaries(boundaries, num_layers)
    for shift in (0, 1):
        ids = tuple(b - shift for b in wanted)
        if min(ids, default=0) >= 0 and _SHIFT[convention](ids, num_layers) == shift:
            return ids
    _fail(
        "EA003",
        f"boundaries {[int(b) for b in wanted]} cannot be written as {convention} ids for {num_layers} layers",
        next_step="choose another convention, or other boundaries",
    )


def default_boundaries(num_layers: int) -> tuple[Boundary, ...]:
    """The boundaries of a draft that names none: (2, N // 2, N - 3).

    Raises:
        BoundaryError: EA004, fewer than 7 layers would make two of them equal or out of order.
    """
    triple = (2, num_layers // 2, num_layers - 3)
    if not triple[0] < triple[1] < triple[2]:
        _fail(
            "EA004",
            f"{num_layers} layers are too few for the default boundaries (2, N // 2, N - 3) = {triple}",
            expected="7 layers or more",
            found=str(num_layers),
            next_step="name the boundaries",
        )
    return check_boundaries(triple, num_layers)


def read_ids(
    ids: Sequence[int] | None,
    num_layers: int,
    *,
    declared: Convention | None = None,
    registered: Convention | None = None,
) -> Reading:
    """Decide how a draft's layer ids are meant; what cannot be decided stays undecided.

    In this order: the user's `declared` convention; the `registered` one of this checkpoint; the exact default triple
    ([1, N//2-1, N-4] is `layer_output`, [2, N//2, N-3] is `boundary`); N among the ids (`boundary`); else undecided.
    Without ids the boundaries are the defaults.

    Raises:
        BoundaryError: EA001, EA002 when no convention, or not the declared one, can hold; EA004 as
            `default_boundaries`.
    """
    if ids is None:
        found = default_boundaries(num_layers)
        return Reading(
            None,
            num_layers,
            Convention.BOUNDARY,
            ConventionSource.NO_IDS,
            found,
            {Convention.BOUNDARY: found},
        )
    ids = tuple(ids)
    candidates: dict[Convention, tuple[Boundary, ...]] = {}
    failure: BoundaryError | None = None
    for candidate in (Convention.BOUNDARY, Convention.LAYER_OUTPUT):
        try:
            candidates[candidate] = to_boundaries(ids, candidate, num_layers)
        except BoundaryError as error:
            failure = failure or error
    convention, source = _decide(ids, num_layers, declared, registered)
    if convention is not None:
        return Reading(ids, num_layers, convention, source, to_boundaries(ids, convention, num_layers), candidates)
    if not candidates and failure is not None:
        raise failure
    return Reading(ids, num_layers, None, ConventionSource.UNDECIDED, None, candidates)


def _decide(
    ids: tuple[int, ...], num_layers: int, declared: Convention | None, registered: Convention | None
) -> tuple[Convention | None, ConventionSource]:
    if declared is not None:
        return declared, ConventionSource.USER
    if registered is not None:
        return registered, ConventionSource.REGISTRY
    n = num_layers
    if n >= 7 and ids == (1, n // 2 - 1, n - 4):
        return Convention.LAYER_OUTPUT, ConventionSource.DEFAULT_TRIPLE
    if n >= 7 and ids == (2, n // 2, n - 3):
        return Convention.BOUNDARY, ConventionSource.DEFAULT_TRIPLE
    if n in ids:
        return Convention.BOUNDARY, ConventionSource.LAST_AMONG_IDS
    return None, ConventionSource.UNDECIDED
