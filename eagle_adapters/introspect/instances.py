"""A module as its constructor would make it, read from source: the source agent's `Node`."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from eagle_adapters.introspect.anatomy import Number
from eagle_adapters.introspect.classes import Classes
from eagle_adapters.introspect.files import ClassDefinition, External
from eagle_adapters.introspect.nodes import Child, Node
from eagle_adapters.introspect.values import Arguments, Items, Values, unite
from eagle_adapters.introspect.words import says_other

DYNAMIC = "the checkpoint:?"
"""Class name of a module whose class the checkpoint chooses."""

_DECODERS = frozenset({"language_model", "llm", "model", "text_model", "thinker"})
"""Attributes that hold a decoder even when the call that makes it cannot be followed."""

_SELF_SIMILAR = 3
"""A class may hold itself this often before the source agent stops looking."""


class Constructor(Protocol):
    """What an instance needs of the interpreter."""

    classes: Classes
    inner: ClassDefinition | None

    def construct(self, instance: Instance) -> None:
        """Fill the slots of an instance."""

    def member(self, owner: object, name: str) -> Values:
        """What `owner.name` may be."""

    def call(self, function: object, arguments: Arguments, where: str) -> Values:
        """What calling a value may give."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What an attribute of an instance may hold, and the `file:line` of the assignment."""

    values: Values
    where: str

    @staticmethod
    def united(branches: Sequence[dict[str, Slot]]) -> dict[str, Slot]:
        """The slots after one of several branches."""
        united: dict[str, Slot] = {}
        for slots in branches:
            for name, slot in slots.items():
                before = united.get(name)
                if before is None or before is slot:
                    united[name] = slot
                else:
                    where = before.where if before.values else slot.where
                    united[name] = Slot(unite(before.values, slot.values), where)
        return united


class Instance:
    """A module, or a container of modules; its members are found when they are first asked for."""

    __slots__ = ("_children", "_lineage", "_made", "arguments", "by", "cls", "declared", "dynamic", "slots", "where")

    def __init__(
        self,
        by: Constructor,
        cls: ClassDefinition | External,
        arguments: Arguments,
        where: str,
        *,
        maker: Instance | None = None,
        dynamic: bool = False,
    ) -> None:
        self.by = by
        self.cls = cls
        self.arguments = arguments
        self.where = where
        self.dynamic = dynamic
        self.slots: dict[str, Slot] = {}
        self.declared: list[str] = []
        self._lineage: tuple[str, ...] = (*maker._lineage, cls.name) if maker is not None else (cls.name,)
        self._made = self._lineage.count(cls.name) > _SELF_SIMILAR
        self._children: tuple[Child, ...] | None = None

    # As a value

    def ready(self) -> Instance:
        """The same instance with its slots filled."""
        if not self._made:
            self._made = True  # first, so that a constructor may read what it has already set
            self.by.construct(self)
        return self

    def get(self, name: str) -> Values | None:
        """What an attribute may hold, or None when the constructor does not set it."""
        slot = self.ready().slots.get(name)
        return None if slot is None else slot.values

    def put(self, name: str, values: Values, where: str, *, called: bool = False) -> None:
        """Set an attribute; `called` says that the value came from a call."""
        self.ready()
        if called and not values and name in _DECODERS:
            values = (Instance(self.by, External(DYNAMIC), Arguments(), where, maker=self, dynamic=True),)
        self.slots[name] = Slot(values, where)
        self._children = None

    def pairs(self) -> list[tuple[str, Values]]:
        """The slots of a container."""
        return [(name, slot.values) for name, slot in self.ready().slots.items()] if self.is_container else []

    @property
    def is_container(self) -> bool:
        """Whether it is a ModuleList, ModuleDict, Sequential, or a plain list or dict."""
        return self.cls.name.startswith(("builtins:", "collections:")) or self.by.classes.container(self.cls)

    # As a node

    @property
    def key(self) -> Hashable:
        """The instance itself: two constructor calls make two modules."""
        return id(self)

    @property
    def class_name(self) -> str:
        """`module:QualName` of the class."""
        return self.cls.name

    @property
    def transparent(self) -> bool:
        """Never: wrappers are put around a model when it is used, not in its source."""
        return False

    @property
    def items(self) -> int | None:
        """Unknown: source does not tell how many layers a config asks for."""
        return None

    def children(self) -> Sequence[Child]:
        """The submodules in the order of their first assignment."""
        if self._children is None:
            slots = list(self.ready().slots.items())
            self._children = tuple(child for name, slot in slots if (child := self._child(name, slot)) is not None)
        return self._children

    def _child(self, name: str, slot: Slot) -> Child | None:
        held = [value for value in slot.values if isinstance(value, Instance)]
        held += [made for value in slot.values if isinstance(value, Items) and (made := self._plain(name, value, slot))]
        held = [one for one in held if not _stands_in(one)] or held
        if not held:
            return None
        first = next((one for one in held if one.dynamic), held[0])
        others = tuple(dict.fromkeys(one.class_name for one in held if one.class_name != first.class_name))
        if first.dynamic and self.by.inner is not None and not says_other(name):
            first = Instance(self.by, self.by.inner, Arguments(), slot.where, maker=self)
        return Child(name, first, slot.where, others)

    def _plain(self, name: str, items: Items, slot: Slot) -> Instance | None:
        """A plain list or dict of modules held as an attribute."""
        if name.startswith("_") or not any(isinstance(value, Instance) for value in items.every()):
            return None
        home = "collections" if items.kind == "OrderedDict" else "builtins"
        made = Instance(self.by, External(f"{home}:{items.kind}"), Arguments(), slot.where, maker=self)
        made._made = True
        for key, values in items.pairs:
            made.put(key, values, slot.where)
        return made

    def attribute(self, name: str) -> Node | None:
        """The module under an attribute, properties included, or None."""
        for child in self.children():
            if child.name == name:
                return child.node
        return _only(self.by.member(self, name))

    def returned(self, method: str) -> Node | None:
        """The module that a method returns, when its text leaves one answer."""
        if self.by.classes.method(self.cls, method) is None:
            return None
        found = [_only(self.by.call(function, Arguments(), "")) for function in self.by.member(self, method)]
        answer = next((node for node in found if node is not None), None)
        if answer is None and method == "get_language_model" and len(self.ready().declared) == 1:
            return self.attribute(self.declared[0])
        return answer

    def method(self, name: str) -> str | None:
        """Where a method is defined (`file:line`), or None."""
        function = self.by.classes.method(self.cls, name)
        return None if function is None else function.file.where(function.node)

    def uses(self, names: Iterable[str]) -> str | None:
        """The first of `names` that the forward, or a method it calls, mentions."""
        mentioned: dict[str, str] = {}
        for method in ("forward", *self._called_by_forward()):
            function = self.by.classes.method(self.cls, method)
            for node in ast.walk(function.node) if function is not None else ():
                name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
                if function is not None and name is not None:
                    mentioned.setdefault(name, function.file.where(node))
        return next((f"{name} at {mentioned[name]}" for name in names if name in mentioned), None)

    def _called_by_forward(self) -> list[str]:
        forward = self.by.classes.method(self.cls, "forward")
        called = ast.walk(forward.node) if forward is not None else ()
        return list(dict.fromkeys(node.attr for node in called if isinstance(node, ast.Attribute)))

    def number(self, names: Sequence[str]) -> Number | None:
        """Unknown: the config is not at hand."""
        return None

    def width(self) -> Number | None:
        """Unknown: the config is not at hand."""
        return None


def _only(values: Values) -> Instance | None:
    found = [value for value in values if isinstance(value, Instance)]
    return found[0] if len(found) == 1 else None


def _stands_in(instance: Instance) -> bool:
    """Whether it only holds the place of a module on another pipeline rank."""
    name = instance.class_name.rpartition(":")[2]
    return "Missing" in name or name == "Identity"
