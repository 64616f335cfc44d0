"""How both agents show a target to the one survey: a tree of `Node`s, over live modules or over class definitions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from eagle_adapters.introspect.anatomy import Number


@dataclass(frozen=True, slots=True)
class Child:
    """A submodule of a node.

    Attributes:
        name: the attribute, or the key in a list or dict.
        node: the submodule.
        where: where it was found: `attribute NAME` or `file:line`.
        others: other classes that the config may choose for it.
    """

    name: str
    node: Node
    where: str
    others: tuple[str, ...] = ()


class Node(Protocol):
    """One module of a target, as an agent sees it. Reading a node never changes the target."""

    @property
    def key(self) -> Hashable:
        """Equal for two nodes exactly when they are the same module."""

    @property
    def class_name(self) -> str:
        """`module:QualName` of the class."""

    @property
    def where(self) -> str:
        """Where the target itself is found, when this is it."""

    @property
    def transparent(self) -> bool:
        """Whether it is a wrapper that only passes calls on (PEFT, DDP, FSDP, `torch.compile`)."""

    @property
    def dynamic(self) -> bool:
        """Whether the checkpoint chooses the class, so that nothing is known inside."""

    @property
    def items(self) -> int | None:
        """How many items it has when it is a list or dict of layers (None when that is not known to this agent)."""

    def children(self) -> Sequence[Child]:
        """The submodules in the order of their definition; absent ones (None) are left out.

        For a list of layers this may be the first items only.
        """

    def attribute(self, name: str) -> Node | None:
        """The module under an attribute, properties included, or None."""

    def returned(self, method: str) -> Node | None:
        """The module that a method without arguments gives, or None when there is no such method or answer."""

    def method(self, name: str) -> str | None:
        """Where a method is defined (`module:QualName.name` or `file:line`), or None when there is none."""

    def uses(self, names: Iterable[str]) -> str | None:
        """The first of `names` that the forward mentions, as `NAME (where)`, or None."""

    def number(self, names: Sequence[str]) -> Number | None:
        """The first of these numbers that the module's config holds, or None."""

    def width(self) -> Number | None:
        """The last dimension of the module's weight, or None."""
