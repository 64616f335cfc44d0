"""Compare captured states with a reference, boundary by boundary, and name what is wrong with those that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagle_adapters.diagnostics import Diagnostic

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 3e-2, torch.float16: 1e-2}
"""How large the error may be, relative to the size of the reference, for states computed in each dtype."""


@dataclass(frozen=True, slots=True)
class Match:
    """How the states captured for one boundary compare with the reference at one kind of position.

    Attributes:
        boundary: the boundary that was asked for.
        place: `text` or `image`.
        positions: how many positions were compared.
        max_abs_error: largest difference to the reference of this boundary.
        relative_error: root mean square of the difference over that of the reference.
        cosine: mean cosine to the reference, over positions.
        below, above: relative error to the reference of boundary b - 1, b + 1; None at the ends.
        nearest: the boundary whose reference is nearest.
        nearest_wrong_error: largest difference to the reference of the nearest other boundary.
        passed: this boundary's reference is the nearest, and within tolerance.
    """

    boundary: int
    place: str
    positions: int
    max_abs_error: float
    relative_error: float
    cosine: float
    below: float | None
    above: float | None
    nearest: int
    nearest_wrong_error: float
    passed: bool

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Reference:
    """What the target's states should be for one prompt.

    Attributes:
        states: boundary -> [tokens, hidden], every boundary 0..N.
        logits: [tokens, vocab] of the target itself.
        finish: turns states at boundary N [tokens, hidden] into logits [tokens, vocab].
        final_norm: the norm after the last layer, on [tokens, hidden].
        image: [tokens] bool, true at image positions.
    """

    states: Mapping[int, Tensor]
    logits: Tensor
    finish: Callable[[Tensor], Tensor]
    final_norm: Callable[[Tensor], Tensor]
    image: Tensor

    @property
    def num_layers(self) -> int:
        """N."""
        return max(self.states)


def compare(
    captured: Mapping[int, Tensor], reference: Reference, boundaries: Sequence[int], tolerance: float
) -> tuple[list[Match], list[Diagnostic]]:
    """Judge the captured states of one prompt.

    Args:
        captured: boundary -> [tokens, hidden].
        reference: the states as they should be, for at least as many positions.
        boundaries: what was asked for.
        tolerance: the largest relative error that passes.

    Returns:
        One match for each boundary and kind of position, and one diagnostic (EA60x) for each boundary that failed.
    """
    matches: list[Match] = []
    faults: list[Diagnostic] = []
    tokens = min((state.shape[0] for state in captured.values()), default=0)
    places = {"text": ~reference.image[:tokens], "image": reference.image[:tokens]}
    for boundary in boundaries:
        state = captured.get(boundary)
        if state is None:
            faults.append(Diagnostic("EA601", f"boundary {boundary} was not captured", found=str(sorted(captured))))
            continue
        own = [
            _match(boundary, place, state[:tokens][mask].float(), reference, mask, tolerance)
            for place, mask in places.items()
            if mask.any()
        ]
        matches += own
        alike = _alike(boundary, reference, tokens, tolerance)
        if alike is not None:
            faults.append(alike)
        elif not all(match.passed for match in own):
            faults.append(_name_fault(boundary, own, captured, reference, tokens, tolerance))
    order = [next((m.nearest for m in matches if m.boundary == b), None) for b in boundaries if b in captured]
    if order != sorted(boundaries) and None not in order and sorted(order) == sorted(boundaries):  # type: ignore[type-var]
        faults = [f for f in faults if f.code != "EA602"]
        faults.append(
            Diagnostic("EA603", "the states are out of order", expected=str(list(boundaries)), found=str(order))
        )
    return matches, faults


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference over that of `expected`."""
    return float((found - expected).pow(2).mean().sqrt() / expected.pow(2).mean().sqrt().clamp_min(1e-30))


def _alike(boundary: int, reference: Reference, tokens: int, tolerance: float) -> Diagnostic | None:
    """A neighbour that is as good as equal in the reference itself: then a match proves nothing."""
    own = reference.states[boundary][:tokens].float()
    for neighbour in (boundary - 1, boundary + 1):
        other = reference.states.get(neighbour)
        if other is not None and relative_error(other[:tokens].float(), own) <= 10 * tolerance:
            return Diagnostic(
                "EA611",
                f"boundaries {boundary} and {neighbour} of the reference are too much alike to tell apart",
                expected=f"a relative difference above {10 * tolerance:g}",
                where=f"boundary {boundary}",
                next_step="use weights under which every layer changes the stream",
            )
    return None


def _match(boundary: int, place: str, state: Tensor, reference: Reference, mask: Tensor, tolerance: float) -> Match:
    def at(b: int) -> Tensor:
        return reference.states[b][: len(mask)][mask].float()

    errors = {b: relative_error(state, at(b)) for b in reference.states}
    finite = {b: e if e == e else float("inf") for b, e in errors.items()}  # NaN never is the nearest
    nearest = min(finite, key=finite.__getitem__)
    wrong = min((b for b in finite if b != boundary), key=finite.__getitem__)
    expected = at(boundary)
    return Match(
        boundary=boundary,
        place=place,
        positions=int(mask.sum()),
        max_abs_error=float((state - expected).abs().max()),
        relative_error=errors[boundary],
        cosine=float(torch.nn.functional.cosine_similarity(state, expected, dim=-1).mean()),
        below=errors.get(boundary - 1),
        above=errors.get(boundary + 1),
        nearest=nearest,
        nearest_wrong_error=float((state - at(wrong)).abs().max()),
        passed=nearest == boundary and finite[boundary] <= tolerance,
    )


def _name_fault(
    boundary: int,
    matches: Sequence[Match],
    captured: Mapping[int, Tensor],
    reference: Reference,
    tokens: int,
    tolerance: float,
) -> Diagnostic:
    """The most specific description of a boundary that failed."""
    state = captured[boundary][:tokens].float()
    worst = max(matches, key=lambda m: m.relative_error)
    expected = {b: s[:tokens].float() for b, s in reference.states.items()}
    found = f"relative error {worst.relative_error:.2g} at {worst.place} positions, nearest boundary {worst.nearest}"
    where = f"boundary {boundary}, {worst.place} positions"
    if not bool(torch.isfinite(state).all()):
        return Diagnostic("EA607", f"boundary {boundary} holds values that are not finite", where=where)
    twins = [b for b in captured if b != boundary and torch.equal(captured[b][:tokens].float(), state)]
    if twins and relative_error(expected[twins[0]], expected[boundary]) > tolerance:
        return Diagnostic(
            "EA606",
            f"boundaries {boundary} and {twins[0]} hold the very same values",
            expected="a snapshot of each",
            found="one buffer, overwritten after the first capture",
            where=where,
            next_step="clone the state when it is captured",
        )
    others = {b: relative_error(state, e) for b, e in expected.items() if b != boundary}
    other = min(others, key=others.__getitem__)
    if others[other] <= tolerance:
        shift = other - boundary
        name = "off by one" if abs(shift) == 1 else f"off by {abs(shift)}"
        return Diagnostic(
            "EA602",
            f"boundary {boundary} is {name}: it holds boundary {other}",
            expected=f"boundary {boundary}",
            found=f"boundary {other}",
            where=where,
            next_step="check the convention of the layer ids",
        )
    if relative_error(state, reference.final_norm(reference.states[boundary][:tokens]).float()) <= tolerance:
        return Diagnostic(
            "EA604",
            f"boundary {boundary} has the final norm applied",
            expected="the residual stream before any final norm",
            found="the state after it",
            where=where,
        )
    if boundary > 0:
        without = relative_error(state + expected[boundary - 1], expected[boundary])
        if without < 0.75 * relative_error(state, expected[boundary]):
            return Diagnostic(
                "EA605",
                f"boundary {boundary} looks like the last block's own output: the residual was left out",
                expected="hidden + residual",
                found=found,
                where=where,
            )
    return Diagnostic(
        "EA608",
        f"boundary {boundary} does not match the reference",
        expected=f"<= {tolerance:g}",
        found=found,
        where=where,
    )
