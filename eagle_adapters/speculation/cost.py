"""What acceptance is worth: the speed-up for given costs, and the acceptance from which drafting pays at all.

Costs are in units of one plain decoding pass of the target. A round of drafting costs `steps * draft_cost +
verify_cost` and gives as many tokens as its acceptance length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import UsageError

_BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class Prediction:
    """What drafting so many tokens a round is worth.

    Attributes:
        steps: drafted tokens in a round.
        length: tokens that a round gives.
        speed_up: against plain decoding; below 1 drafting is slower.
    """

    steps: int
    length: float
    speed_up: float


def speed_up(length: float, draft_cost: float, verify_cost: float, steps: int) -> float:
    """How much faster than plain decoding: the tokens of a round over its cost.

    Raises:
        UsageError: EA901, a cost or a number of steps that cannot be.
    """
    return length / round_cost(draft_cost, verify_cost, steps)


def round_cost(draft_cost: float, verify_cost: float, steps: int) -> float:
    """The cost of a round, which is also the acceptance length at which drafting breaks even.

    Args:
        draft_cost: one step of the draft, e.g. 0.03.
        verify_cost: one pass of the target over all drafted tokens; 1 when decoding is bound by memory, more in large
            batches.
        steps: drafted tokens in a round.

    Raises:
        UsageError: EA901, as `speed_up`.
    """
    if not (draft_cost >= 0 and verify_cost > 0 and steps > 0):
        found = f"draft cost {draft_cost}, verify cost {verify_cost}, {steps} steps"
        expected = "a draft cost of 0 or more, a verify cost above 0, and 1 step or more"
        raise UsageError(Diagnostic("EA901", "these costs cannot be", expected=expected, found=found))
    return steps * draft_cost + verify_cost


def expected_length(acceptance: float, steps: int) -> float:
    """The acceptance length when every drafted token is accepted with the same probability, independently."""
    length, chance = 1.0, 1.0
    for _ in range(steps):
        chance *= acceptance
        length += chance
    return length


def break_even_acceptance(draft_cost: float, verify_cost: float, steps: int) -> float | None:
    """The acceptance probability of one drafted token from which drafting is no slower than plain decoding.

    None when not even accepting everything pays; 0 when drafting costs nothing.

    Raises:
        UsageError: EA901, as `round_cost`.
    """
    needed = round_cost(draft_cost, verify_cost, steps)
    if needed > steps + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if expected_length(middle, steps) < needed:
            low = middle
        else:
            high = middle
    return high if needed > 1 else 0.0


def predict(rates: Sequence[float], draft_cost: float, verify_cost: float) -> tuple[Prediction, ...]:
    """The speed-up for every number of steps up to the measured one.

    Args:
        rates: for each drafted position, how often it and all before it were accepted.
        draft_cost: as `round_cost`.
        verify_cost: as `round_cost`.

    Raises:
        UsageError: EA901, as `round_cost`.
    """
    out = []
    for steps in range(1, len(rates) + 1):
        length = 1 + sum(rates[:steps])
        out.append(Prediction(steps, length, speed_up(length, draft_cost, verify_cost, steps)))
    return tuple(out)
