"""What a value of a layer's forward still carries of the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Carry:
    """A value.

    Attributes:
        addends: inputs contained with coefficient one.
        scaled: inputs contained with another or unknown coefficient.
        reads: inputs it depends on in any way.
        items: the parts, when it is a tuple.
        none: whether it is None.
    """

    addends: frozenset[str] = frozenset()
    scaled: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    items: tuple[Carry, ...] | None = None
    none: bool = False


UNKNOWN = Carry()
NONE = Carry(none=True)


def source_of(name: str) -> Carry:
    """A fresh input."""
    return Carry(frozenset({name}), reads=frozenset({name}))


def added(left: Carry, right: Carry) -> Carry:
    """The sum of two values."""
    double = left.addends & right.addends
    scaled = left.scaled | right.scaled | double
    return Carry((left.addends | right.addends) - scaled, scaled, left.reads | right.reads)


def mixed(values: Sequence[Carry]) -> Carry:
    """Anything computed from the values."""
    reads: frozenset[str] = frozenset()
    for value in values:
        reads |= value.reads
        if value.items:
            reads |= mixed(value.items).reads
    return Carry(reads=reads)


def scaled(value: Carry) -> Carry:
    """A multiple of the value."""
    return Carry(frozenset(), value.scaled | value.addends, value.reads)


def either(left: Carry, right: Carry) -> Carry:
    """One of two values."""
    if left == right:
        return left
    if left.items is not None and right.items is not None and len(left.items) == len(right.items):
        return Carry(items=tuple(either(a, b) for a, b in zip(left.items, right.items, strict=True)))
    both = left.addends & right.addends
    rest = (left.addends | right.addends | left.scaled | right.scaled) - both
    return Carry(both, rest, mixed([left]).reads | mixed([right]).reads)
