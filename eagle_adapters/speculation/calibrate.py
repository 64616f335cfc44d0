"""Find what a draft's layer ids mean, by measuring every reading of them on the same text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eagle_adapters.boundaries import Boundary, Convention, check_boundaries, default_boundaries, to_boundaries
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import BoundaryError, UsageError
from eagle_adapters.speculation.accept import Interval, bootstrap

if TYPE_CHECKING:
    from eagle_adapters.speculation.drafter import Drafter
    from eagle_adapters.speculation.recording import Recording


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to read a draft's ids.

    Attributes:
        boundaries: what it would capture.
        names: every rule that gives these boundaries.
        conventions: those of the rules that are conventions.
    """

    boundaries: tuple[Boundary, ...]
    names: tuple[str, ...]
    conventions: tuple[Convention, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate and what it is worth.

    Attributes:
        candidate: the reading.
        length: its acceptance length.
        behind: how far it is behind the best one, on the same places; None for the best itself.
        excluded: whether the whole interval of `behind` is above 0.
    """

    candidate: Candidate
    length: Interval
    behind: Interval | None
    excluded: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """All readings, best first.

    Attributes:
        ranking: at least two.
        places: places at which each reading drafted.
        prompts: prompts they come from.
        steps: tokens drafted at each place.
    """

    ranking: tuple[Ranked, ...]
    places: int
    prompts: int
    steps: int

    @property
    def decided(self) -> bool:
        """Whether the best reading drafts at all and every other one is excluded."""
        return self.ranking[0].length.low > 1 + FLOOR and all(r.excluded for r in self.ranking[1:])

    @property
    def best(self) -> Candidate | None:
        """The right reading, or None when the data cannot tell."""
        return self.ranking[0].candidate if self.decided else None

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        first = self.ranking[0]
        if self.decided:
            named = " = ".join(first.candidate.names)
            return f"boundaries {[int(b) for b in first.candidate.boundaries]} ({named})"
        if first.length.low <= 1 + FLOOR:
            return "the data cannot tell: no reading makes the draft useful; suspect its weights or its target"
        rivals = [str([int(b) for b in r.candidate.boundaries]) for r in self.ranking[1:] if not r.excluded]
        return f"the data cannot tell {', '.join(rivals)} from {[int(b) for b in first.candidate.boundaries]}"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "verdict": self.verdict,
            "decided": self.decided,
            "boundaries": None if self.best is None else [int(b) for b in self.best.boundaries],
            "conventions": [] if self.best is None else [str(c) for c in self.best.conventions],
            "places": self.places,
            "prompts": self.prompts,
            "steps": self.steps,
            "ranking": [
                {
                    "boundaries": [int(b) for b in ranked.candidate.boundaries],
                    "readings": list(ranked.candidate.names),
                    "acceptance_length": ranked.length.as_dict(),
                    "behind": None if ranked.behind is None else ranked.behind.as_dict(),
                    "excluded": ranked.excluded,
                }
                for ranked in self.ranking
            ],
        }


FLOOR = 0.05
"""Accepted tokens a round that a right reading must surpass: a wrong one can accept a few by luck."""


def candidates(ids: Sequence[int] | None, num_layers: int) -> list[Candidate]:
    """Every admissible reading of a draft's ids, the conventions first.

    With ids: each convention, and the neighbours one boundary below and above them. Without: the default boundaries,
    their neighbours, and the other triples in use (quarters; the late ones with N).

    Raises:
        BoundaryError: EA001, EA002, no reading fits the target at all.
    """
    found: dict[tuple[Boundary, ...], tuple[list[str], list[Convention]]] = {}
    failure: BoundaryError | None = None

    def add(name: str, boundaries: Sequence[int], convention: Convention | None = None) -> None:
        nonlocal failure
        try:
            fitting = check_boundaries([Boundary(b) for b in boundaries], num_layers)
        except BoundaryError as error:
            failure = failure or error
            return
        names, conventions = found.setdefault(fitting, ([], []))
        names.append(name)
        if convention is not None:
            conventions.append(convention)

    if ids is None:
        n = num_layers
        add("default", default_boundaries(n))
        _add_neighbours(add, default_boundaries(n), "default")
        add("quarters", (n // 4, n // 2, 3 * n // 4))
        add("late", (2 * n // 3, 5 * n // 6, n))
    else:
        readings: dict[Convention, tuple[Boundary, ...]] = {}
        for convention in Convention:
            try:
                readings[convention] = to_boundaries(ids, convention, num_layers)
            except BoundaryError as error:
                failure = failure or error
                continue
            add(str(convention), readings[convention], convention)
        for convention in (Convention.BOUNDARY, Convention.LAYER_OUTPUT):
            if convention in readings:
                _add_neighbours(add, readings[convention], str(convention))
    if not found and failure is not None:
        raise failure
    return [Candidate(b, tuple(names), tuple(conventions)) for b, (names, conventions) in found.items()]


def _add_neighbours(add: Callable[..., None], boundaries: Sequence[int], name: str) -> None:
    for shift in (-1, 1):
        add(f"{name} {shift:+d}", [b + shift for b in boundaries])


def calibrate(
    model: Any,
    draft: Any,
    prompts: Sequence[Sequence[int]],
    *,
    readings: Sequence[Candidate] | None = None,
    steps: int = 3,
    max_new_tokens: int = 64,
    temperature: float = 1.0,
    eos_token_id: int | Sequence[int] | None = None,
    batch: int = 16,
    seed: int = 0,
    on_batch: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Rank the readings of a draft's ids by the acceptance they give on the target's own text.

    The target writes once, with the states of all readings captured; only the draft runs for each reading. The text is
    sampled, since what is accepted of it is an expectation at every place (see `replay`), which tells close readings
    apart long before counts of greedy tokens do. A reading is excluded when the paired bootstrap over prompts puts it
    behind the best one with 95 % confidence, corrected for the number of readings.

    Args:
        model: the `transformers` target.
        draft: a `Drafter`, or a draft's folder.
        prompts: token ids; two or more.
        readings: what to try; default all `candidates` of the draft's ids.
        steps: tokens drafted at each place.
        max_new_tokens: of the target's text after each prompt.
        temperature: of that text and of the draft; 0 counts greedy tokens.
        eos_token_id: ends a text.
        batch: prompts at a time.
        seed: of the bootstrap.
        on_batch: called with the prompts done and the prompts in all.

    Raises:
        DataError: see `load_drafter`.
        BoundaryError: EA001, EA002, no reading fits the target.
        UsageError: EA805, EA806, too few readings or prompts, or too little text.
    """
    from eagle_adapters.speculation.drafter import Drafter, load_drafter
    from eagle_adapters.speculation.recording import record
    from eagle_adapters.speculation.speculate import ensure_wrapped, num_layers

    model = ensure_wrapped(model)
    drafter = draft if isinstance(draft, Drafter) else load_drafter(draft, model)
    tried = list(candidates(drafter.spec.ids, num_layers(model)) if readings is None else readings)
    wanted = sorted({int(b) for c in tried for b in c.boundaries})
    recordings = record(
        model,
        prompts,
        wanted,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        batch=batch,
        seed=seed,
        eos_token_id=eos_token_id,
        on_batch=on_batch,
    )
    return compare(drafter, recordings, tried, steps=steps, seed=seed)


def compare(
    drafter: Drafter, recordings: Iterable[Recording], tried: Sequence[Candidate], *, steps: int = 3, seed: int = 0
) -> Calibration:
    """Rank readings on text that is recorded already; `calibrate` says how.

    Args:
        drafter: the draft.
        recordings: hold the states of every reading.
        tried: the readings; two or more.
        steps: tokens drafted at each place.
        seed: of the bootstrap.

    Raises:
        UsageError: EA805, EA806, as `calibrate`.
    """
    from eagle_adapters.speculation.recording import replay

    if len(tried) < 2 or any(len(c.boundaries) != drafter.spec.num_aux for c in tried):
        found = "; ".join(str([int(b) for b in c.boundaries]) for c in tried)
        _refuse(
            "EA805", "these readings cannot be compared", f"two or more of {drafter.spec.num_aux} boundaries", found
        )
    sums: list[list[tuple[float, float]]] = [[] for _ in tried]
    for recording in recordings:
        for kept, candidate in zip(sums, tried, strict=True):
            counts = replay(drafter, recording, candidate.boundaries, steps)
            kept.extend((float(row.sum()) + len(row), float(len(row))) for row in counts if len(row))
    if len(sums[0]) < 2:
        _refuse("EA806", "there is too little text to compare readings on", "two or more prompts", str(len(sums[0])))
    return _rank(tried, sums, steps, seed)


def _rank(tried: Sequence[Candidate], sums: list[list[tuple[float, float]]], steps: int, seed: int) -> Calibration:
    lengths = [bootstrap(kept, seed) for kept in sums]
    order = sorted(range(len(tried)), key=lambda k: -lengths[k].mean)
    first, level = sums[order[0]], 1 - 0.05 / (len(tried) - 1)
    ranking = [Ranked(tried[order[0]], lengths[order[0]], None, False)]
    for k in order[1:]:
        gaps = [(best - own, places) for (best, places), (own, _) in zip(first, sums[k], strict=True)]
        behind = bootstrap(gaps, seed, level)
        ranking.append(Ranked(tried[k], lengths[k], behind, behind.low > 0))
    return Calibration(tuple(ranking), int(sum(places for _, places in first)), len(first), steps)


def _refuse(code: str, message: str, expected: str, found: str) -> None:
    raise UsageError(Diagnostic(code, message, expected=expected, found=found))
