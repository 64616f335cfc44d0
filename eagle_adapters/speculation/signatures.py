"""The signatures of known faults in figures of acceptance: what tells each one, and where it was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from eagle_adapters.speculation.accept import Acceptance, Interval
from eagle_adapters.speculation.cost import expected_length
from eagle_adapters.speculation.intervals import MATERIAL, Z, chain_of, error_of, is_worse, length_of, rate_of
from eagle_adapters.speculation.served import Served

NOTHING = 0.05
"""Acceptance of the first drafted token below which nothing but chance is accepted."""

WEAK = 0.45
"""Acceptance of one token that a sound draft surpasses; published heads have 0.65 to 0.72 at the first position."""


class Cause(StrEnum):
    """What a served acceptance points to."""

    SOUND = "sound"
    INTERFACE = "interface"
    WEIGHTS = "weights"
    POSITIONS = "positions"
    TEMPLATE = "template"
    WEAK_DRAFT = "weak_draft"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the signatures look at; `worse` of a pair of rates is a loss that is both material and significant."""

    offline: Acceptance
    served: Served
    spread: float
    interval: Interval
    difference: Interval
    variants: Mapping[str, Served]
    readings: Sequence[tuple[str, Interval]]

    @property
    def equal(self) -> bool:
        """Whether the lengths agree."""
        return not self.lower and (
            self.difference.low <= 0 or self.difference.mean < MATERIAL * self.offline.length.mean
        )

    @property
    def lower(self) -> bool:
        """Whether serving loses length, materially and significantly."""
        return self.difference.high < 0 and -self.difference.mean >= MATERIAL * self.offline.length.mean

    def first(self) -> tuple[Interval, Interval] | None:
        """The acceptance of the first position, offline and served."""
        rates = self.served.rates
        if not rates or not self.offline.rates:
            return None
        return (
            rate_of(self.offline.rates[0], self.offline.rounds, self.spread),
            rate_of(rates[0], self.served.rounds or 0, self.spread),
        )

    def later(self) -> tuple[Interval, Interval] | None:
        """The acceptance of a later token once those before it were accepted, over all later positions."""
        rates = self.served.rates
        count = min(len(rates or ()), len(self.offline.rates))
        if rates is None or count < 2:
            return None
        return (
            chain_of(self.offline.rates[:count], self.offline.rounds, self.spread),
            chain_of(rates[:count], self.served.rounds or 0, self.spread),
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """A pattern of figures, the cause it was seen with, and how to make sure."""

    name: str
    cause: Cause
    tells: Callable[[Facts], str | None]
    seen: str
    next_step: str


def _nothing_offline(facts: Facts) -> str | None:
    if facts.offline.rates and facts.offline.rates[0] < NOTHING:
        return f"even on right states only {facts.offline.rates[0]:.1%} of first tokens are accepted"
    return None


def _other_reading(facts: Facts) -> str | None:
    if not facts.lower:
        return None
    for name, length in facts.readings:
        near = abs(length.mean - facts.interval.mean) <= Z * math.hypot(error_of(length), error_of(facts.interval))
        apart = length.high < facts.offline.length.low
        if near and apart:
            return f"served length {facts.interval} is that of the reading {name} offline, {length}"
    return None


def _nothing_served(facts: Facts) -> str | None:
    first = facts.first()
    found = first[1].mean if first is not None else (facts.served.length - 1)
    if _nothing_offline(facts) is None and facts.lower and found < NOTHING:
        return f"first tokens are accepted {found:.1%} of the time, offline {facts.offline.rates[0]:.1%}"
    return None


def _template(facts: Facts) -> str | None:
    return _better(facts, "template", "with the chat template")


def _images(facts: Facts) -> str | None:
    return _worse_variant(facts, "images", "after images")


def _long(facts: Facts) -> str | None:
    return _worse_variant(facts, "long", "on long prompts")


def _first_lower(facts: Facts) -> str | None:
    first = facts.first()
    if first is None or not facts.lower or not is_worse(*first) or first[1].mean < NOTHING:
        return None
    return f"the first token, which depends on the target's states alone, is accepted {first[1]}, offline {first[0]}"


def _later_lower(facts: Facts) -> str | None:
    first, later = facts.first(), facts.later()
    if first is None or later is None or not facts.lower or is_worse(*first) or not is_worse(*later):
        return None
    return f"the first token is as offline, {first[1]}, but each later one only {later[1]}, offline {later[0]}"


def _length_only(facts: Facts) -> str | None:
    if facts.lower and facts.first() is None:
        return f"served length {facts.interval}, offline {facts.offline.length}; the engine gave no rates by position"
    return None


def _weak(facts: Facts) -> str | None:
    low = expected_length(WEAK, facts.offline.steps)
    if facts.equal and facts.offline.length.high < low and _nothing_offline(facts) is None:
        return f"served and offline agree at {facts.offline.length}, below {low:.2f} for {facts.offline.steps} steps"
    return None


def _sound(facts: Facts) -> str | None:
    if facts.equal and _weak(facts) is None and _nothing_offline(facts) is None:
        return f"served length {facts.interval} agrees with offline {facts.offline.length}"
    return None


SIGNATURES: tuple[Signature, ...] = (
    Signature(
        "nothing is accepted even offline",
        Cause.WEIGHTS,
        _nothing_offline,
        "converted heads that accept nothing: a lost rename left the layer random, or d2t came from other data",
        "eagle-adapters check TARGET --draft DRAFT: look for missing, random or constant tensors and the maps",
    ),
    Signature(
        "served like another reading",
        Cause.INTERFACE,
        _other_reading,
        "explicit ids shifted by one cost about 0.1 tokens a round on Kimi-K2.5",
        "hand the engine the calibrated boundaries; eagle-adapters check names the fields each engine reads",
    ),
    Signature(
        "nothing is accepted served",
        Cause.INTERFACE,
        _nothing_served,
        "gpt-oss-120b with ignored ids (0.00, then 0.47); Llama-3.3-70B on default ids (length 1.04, then 2.77)",
        "eagle-adapters verify the served target; check that the hook ran before graphs were captured",
    ),
    Signature(
        "better with the template",
        Cause.TEMPLATE,
        _template,
        "MiniMax-M3: raw prompts without template fall to about 1",
        "send prompts through the chat template",
    ),
    Signature(
        "worse after images",
        Cause.POSITIONS,
        _images,
        "multimodal positions computed and never passed on; embeddings shifted by one after pruning",
        "compare mrope_section of target and draft; try text prompts of the same length",
    ),
    Signature(
        "worse on long prompts",
        Cause.POSITIONS,
        _long,
        "rope_scaling dropped by a conversion; a head with 2048 positions, slower than none above 2 k tokens",
        "compare rope_theta, rope_scaling and max_position_embeddings with the training config",
    ),
    Signature(
        "the first token is lost",
        Cause.INTERFACE,
        _first_lower,
        "Gemma3-27B without the residual (1.06, then 1.89); partial sums under tensor parallelism on Kimi-K2.5",
        "eagle-adapters calibrate the draft, and verify the served target at TP 1 and TP n",
    ),
    Signature(
        "later tokens are lost",
        Cause.POSITIONS,
        _later_lower,
        "norm_output read differently in training and serving; draft positions off by one",
        "compare norm_output, rope and positions of the draft steps: the target's states are right",
    ),
    Signature(
        "only a length",
        Cause.INTERFACE,
        _length_only,
        "a head with 98 % in training and 10 % served",
        "take the rates by position: vLLM's per-position counters, or SGLang's meta_info",
    ),
    Signature(
        "weak everywhere",
        Cause.WEAK_DRAFT,
        _weak,
        "an own head with 2.70 against the official 3.12; 90 % top-k accuracy and a length of 1.2",
        "the interface is right: train the draft longer, or on data like the prompts",
    ),
    Signature(
        "as offline",
        Cause.SOUND,
        _sound,
        "gpt-oss-120b served at 0.65, 0.40, 0.24",
        "none: for more speed see the cost model, or a better draft",
    ),
)
"""Every signature, the most telling first."""


def _better(facts: Facts, name: str, words: str) -> str | None:
    other = facts.variants.get(name)
    if other is None:
        return None
    length = length_of(other, facts.offline, facts.spread)
    if not is_worse(length, facts.interval):
        return None
    return f"served length {facts.interval}, but {length} {words}"


def _worse_variant(facts: Facts, name: str, words: str) -> str | None:
    other = facts.variants.get(name)
    if other is None:
        return None
    length = length_of(other, facts.offline, facts.spread)
    if not is_worse(facts.interval, length):
        return None
    return f"served length {facts.interval}, but only {length} {words}"
