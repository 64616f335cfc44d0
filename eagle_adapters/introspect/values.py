"""What an expression in a constructor may be worth, as far as the source agent cares."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from eagle_adapters.introspect.files import ClassDefinition, External, FunctionDefinition, SourceFile

Values: TypeAlias = tuple[object, ...]
"""Every value an expression may have; empty when none of them matters (None, numbers, tensors, configs).

A value is an instance of a module (`source.Instance`), a class, function or module definition, a string, or one of the
types below.
"""


@dataclass(eq=False, slots=True)
class Items:
    """A literal list or dict: keys (indices for a list) with the values each may have; `kind` names the type."""

    kind: str
    pairs: list[tuple[str, Values]] = field(default_factory=list)

    def every(self) -> Values:
        """All values of all items."""
        return unite(*(values for _, values in self.pairs))

    def append(self, values: Values) -> None:
        """One more item at the end."""
        self.pairs.append((str(len(self.pairs)), values))


@dataclass(frozen=True, slots=True)
class Arguments:
    """Evaluated arguments of a call."""

    positional: tuple[Values, ...] = ()
    named: Mapping[str, Values] = field(default_factory=dict)

    def at(self, index: int, name: str) -> Values:
        """One argument by position or name."""
        if name in self.named:
            return self.named[name]
        return self.positional[index] if index < len(self.positional) else ()

    def after(self, ahead: Arguments) -> Arguments:
        """These arguments with others given ahead of them."""
        return Arguments((*ahead.positional, *self.positional), {**ahead.named, **self.named})


@dataclass(frozen=True, eq=False, slots=True)
class Bound:
    """A callable with the arguments given ahead: `self` of a method, or those of `functools.partial`."""

    function: object
    ahead: Arguments


@dataclass(frozen=True, eq=False, slots=True)
class Closure:
    """A lambda or local function with the frame it was made in."""

    node: ast.Lambda | ast.FunctionDef
    frame: Frame


@dataclass(frozen=True, eq=False, slots=True)
class Imported:
    """A name imported inside a function; the module is looked up when the name is used."""

    statement: ast.Import | ast.ImportFrom
    name: str


@dataclass(eq=False, slots=True)
class Frame:
    """Where an expression is evaluated.

    Attributes:
        file: the file it stands in.
        variables: local names.
        owner: the class that `super()` starts from.
        returns: what `return` gave so far.
    """

    file: SourceFile
    variables: dict[str, Values] = field(default_factory=dict)
    owner: ClassDefinition | None = None
    returns: list[Values] = field(default_factory=list)


def unite(*several: Values) -> Values:
    """All values, each once, in order."""
    seen: list[object] = []
    for values in several:
        seen.extend(value for value in values if not any(value is other or _equal(value, other) for other in seen))
    return tuple(seen)


def _equal(one: object, other: object) -> bool:
    return isinstance(one, ClassDefinition | FunctionDefinition | External | str) and one == other
