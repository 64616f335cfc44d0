"""The detectors, against planted faults: each fault is found and called by its name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from eagle_adapters.verify import Reference, compare

N, TOKENS, HIDDEN = 8, 10, 32
NORM = torch.nn.RMSNorm(HIDDEN)
HEAD = torch.nn.Linear(HIDDEN, 50)
ALL = list(range(N + 1))
States = dict[int, Tensor]


def stream() -> States:
    """A residual stream of N blocks: boundary -> [tokens, hidden]."""
    generator = torch.Generator().manual_seed(3)
    states = {0: torch.randn(TOKENS, HIDDEN, generator=generator)}
    for b in range(1, N + 1):
        states[b] = states[b - 1] + torch.randn(TOKENS, HIDDEN, generator=generator)
    return states


def reference(image: Tensor | None = None) -> Reference:
    with torch.no_grad():
        NORM.weight.copy_(torch.linspace(0.5, 2.0, HIDDEN))
    states = stream()
    mask = torch.zeros(TOKENS, dtype=torch.bool) if image is None else image
    return Reference(
        states, HEAD(NORM(states[N])).detach(), lambda s: HEAD(NORM(s)).detach(), lambda s: NORM(s).detach(), mask
    )


def test_the_right_states_pass() -> None:
    matches, faults = compare(stream(), reference(), ALL, 1e-4)
    assert faults == []
    assert [m.boundary for m in matches] == ALL
    for match in matches:
        assert (match.max_abs_error, match.nearest, match.passed) == (0.0, match.boundary, True)
        assert match.cosine == pytest.approx(1.0)
        assert match.nearest_wrong_error > 1.0


def shifted(states: States) -> States:
    return {b: states[min(b + 1, N)] if b < N else states[N] for b in states}


def normed(states: States) -> States:
    return {**states, N: NORM(states[N]).detach()}


def without_residual(states: States) -> States:
    return {**states, 4: states[4] - states[3]}


def overwritten(states: States) -> States:
    return {**states, 2: states[6].clone(), 6: states[6]}


def not_finite(states: States) -> States:
    return {**states, 3: states[3].clone().index_fill_(0, torch.tensor([1]), float("nan"))}


def missing(states: States) -> States:
    return {b: s for b, s in states.items() if b != 5}


def noisy(states: States) -> States:
    return {**states, 4: states[4] + 0.2 * torch.sin(100 * states[4])}


@pytest.mark.parametrize(
    ("fault", "boundaries", "code", "words"),
    [
        (shifted, [2, 4], "EA602", "boundary 2 is off by one: it holds boundary 3"),
        (normed, ALL, "EA604", "boundary 8 has the final norm applied"),
        (without_residual, ALL, "EA605", "the residual was left out"),
        (overwritten, ALL, "EA606", "boundaries 2 and 6 hold the very same values"),
        (not_finite, ALL, "EA607", "boundary 3 holds values that are not finite"),
        (missing, ALL, "EA601", "boundary 5 was not captured"),
        (noisy, ALL, "EA608", "boundary 4 does not match"),
    ],
)
def test_a_planted_fault_is_named(
    fault: Callable[[States], States], boundaries: list[int], code: str, words: str
) -> None:
    captured = {b: s for b, s in fault(stream()).items() if b in boundaries}
    matches, faults = compare(captured, reference(), boundaries, 1e-4)
    assert faults[0].code == code
    assert words in faults[0].message
    assert all(m.passed for m in matches) == (code == "EA601")


def test_only_the_faulty_boundary_is_blamed() -> None:
    for fault, blamed in ((normed, N), (without_residual, 4), (noisy, 4)):
        matches, faults = compare(fault(stream()), reference(), ALL, 1e-4)
        assert len(faults) == 1
        assert [m.boundary for m in matches if not m.passed] == [blamed]


def test_an_off_by_one_is_named_for_every_boundary() -> None:
    _, faults = compare({b: stream()[b - 1] for b in (2, 4, 5)}, reference(), [2, 4, 5], 1e-4)
    assert [f.code for f in faults] == ["EA602"] * 3
    assert [f.found for f in faults] == ["boundary 1", "boundary 3", "boundary 4"]


def test_a_layer_that_changes_nothing_proves_nothing() -> None:
    truth = reference()
    states = {**truth.states, 4: truth.states[3] + 1e-6}
    flat = Reference(states, truth.logits, truth.finish, truth.final_norm, truth.image)
    _, faults = compare(states, flat, [2, 3, 4, 6], 1e-4)
    assert [(f.code, f.where) for f in faults] == [("EA611", "boundary 3"), ("EA611", "boundary 4")]


def test_a_permutation_is_called_out_of_order() -> None:
    states = stream()
    _, faults = compare({2: states[5], 4: states[2], 5: states[4]}, reference(), [2, 4, 5], 1e-4)
    assert [f.code for f in faults] == ["EA603"]
    assert (faults[0].expected, faults[0].found) == ("[2, 4, 5]", "[5, 2, 4]")


def test_a_fault_at_image_positions_only_is_seen_there() -> None:
    image = torch.zeros(TOKENS, dtype=torch.bool)
    image[3:6] = True
    states = stream()
    states[4][3:6] += 1.0
    matches, faults = compare(states, reference(image), ALL, 1e-4)
    assert [(m.boundary, m.place, m.positions) for m in matches if not m.passed] == [(4, "image", 3)]
    assert faults[0].where == "boundary 4, image positions"


def test_fewer_positions_than_the_reference_are_compared_from_the_start() -> None:
    matches, faults = compare({b: s[:6] for b, s in stream().items()}, reference(), ALL, 1e-4)
    assert faults == []
    assert {m.positions for m in matches} == {6}
