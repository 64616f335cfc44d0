"""Rates and lengths with 95 % intervals, for rounds of drafting, which are alike within one prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eagle_adapters.speculation.accept import Acceptance, Interval
from eagle_adapters.speculation.served import Served

Z = 1.96

MATERIAL = 0.05
"""Relative loss below which a difference does not count, however many rounds there are."""


def is_worse(reference: Interval, found: Interval) -> bool:
    """Whether `found` is below `reference`, materially and significantly."""
    gap = reference.mean - found.mean
    return gap >= MATERIAL * reference.mean and gap > Z * math.hypot(error_of(reference), error_of(found))


def error_of(interval: Interval) -> float:
    """The standard error that a 95 % interval stands for."""
    return (interval.high - interval.low) / (2 * Z)


def variance_of(rates: Sequence[float]) -> float:
    """The variance of the accepted tokens of a round, from how often at least k of them were."""
    mean = sum(rates)
    return max(sum((2 * k + 1) * rate for k, rate in enumerate(rates)) - mean * mean, 1e-9)


def overdispersion(offline: Acceptance) -> float:
    """How much wider the bootstrap over prompts is than independent rounds would be: rounds of one prompt are alike."""
    independent = variance_of(offline.rates) / max(offline.rounds, 1)
    return max(error_of(offline.length) ** 2 / independent, 1.0)


def length_of(served: Served, offline: Acceptance, spread: float) -> Interval:
    """A served length with its interval; without counts the width is that of the offline measurement."""
    if served.rounds is None:
        error = error_of(offline.length)
    else:
        error = math.sqrt(spread * variance_of(served.rates or offline.rates) / served.rounds)
    return Interval(served.length, served.length - Z * error, served.length + Z * error)


def rate_of(rate: float, count: float, spread: float) -> Interval:
    """A rate with Wilson's interval, for as many rounds as are worth independent ones."""
    n = max(count / spread, 1.0)
    middle = (rate + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(rate * (1 - rate) / n + Z * Z / (4 * n * n))
    return Interval(rate, middle - half, middle + half)


def chain_of(rates: Sequence[float], rounds: int, spread: float) -> Interval:
    """How often a later token was accepted, given those before it: a ratio of counts over all later positions."""
    tries, hits = sum(rates[:-1]), sum(rates[1:])
    return rate_of(hits / tries if tries else 0.0, tries * rounds, spread)
