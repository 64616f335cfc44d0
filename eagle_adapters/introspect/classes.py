"""What a class statement says without being run: its bases, methods and class attributes, along the whole hierarchy."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from eagle_adapters.introspect.files import (
    ClassDefinition,
    Expression,
    External,
    Files,
    FunctionDefinition,
    ModuleReference,
)

CONTAINERS = ("ModuleList", "ModuleDict", "Sequential")
_NOT_MODULES = ("Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer")
_MODULE_BASES = ("Module", "PreTrainedModel", *CONTAINERS)
_HEAVY = ("transformers.modeling_utils",)
"""Modules whose classes are bases of everything and define no submodule: not read."""

Base = ClassDefinition | External


class Classes:
    """Class hierarchies over source files."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._orders: dict[tuple[str, str], tuple[Base, ...]] = {}

    def order(self, cls: ClassDefinition) -> tuple[Base, ...]:
        """The method resolution order; unread classes are in it as externals."""
        key = (str(cls.file.path), cls.qualname)
        if key not in self._orders:
            self._orders[key] = (cls,)  # a class that is its own base ends here
            lines: list[list[Base]] = []
            bases = list(self._bases(cls))
            for base in bases:
                lines.append(list(self.order(base)) if isinstance(base, ClassDefinition) else [base])
            self._orders[key] = (cls, *_merge([*lines, bases]))
        return self._orders[key]

    def _bases(self, cls: ClassDefinition) -> Iterator[Base]:
        for expression in cls.node.bases:
            base = self.resolve(cls, expression)
            if isinstance(base, ClassDefinition) and base.file.module not in _HEAVY:
                yield base
            elif isinstance(base, ClassDefinition | External):
                yield External(base.name)

    def resolve(self, cls: ClassDefinition, expression: ast.expr) -> object:
        """What a name or dotted name means in the file of a class."""
        if isinstance(expression, ast.Subscript):  # Base[Type]
            return self.resolve(cls, expression.value)
        if isinstance(expression, ast.Name):
            found = self.files.look_up(cls.file, expression.id)
            if isinstance(found, Expression):  # Base = OtherName
                return self.resolve(cls, found.node) if found.node is not expression else None
            return found or External(f"{cls.file.module}:{expression.id}")
        if isinstance(expression, ast.Attribute):
            owner = self.resolve(cls, expression.value)
            if isinstance(owner, ModuleReference):
                return self.files.member(owner.module, expression.attr)
        return None

    def is_module(self, cls: Base) -> bool:
        """Whether instances are modules, as far as the source tells."""
        if isinstance(cls, External):
            name = cls.name.rpartition(":")[2]
            return name[:1].isupper() and name not in _NOT_MODULES and not name.endswith("Config")
        return any(
            base.name.rpartition(":")[2] in _MODULE_BASES or base.name.startswith("torch.nn.")
            for base in self.order(cls)
            if isinstance(base, External)
        )

    def container(self, cls: Base) -> bool:
        """Whether a class is, or extends, one of torch's module containers."""
        names = [cls] if isinstance(cls, External) else self.order(cls)
        return any(
            base.name.startswith("torch.nn") and base.name.rpartition(":")[2] in CONTAINERS
            for base in names
            if isinstance(base, External)
        )

    def method(self, cls: Base, name: str, after: ClassDefinition | None = None) -> FunctionDefinition | None:
        """The definition that `name` resolves to, or that `super()` in the class `after` resolves to."""
        if isinstance(cls, External):
            return None
        order: Sequence[Base] = self.order(cls)
        if after is not None and after in order:
            order = order[order.index(after) + 1 :]
        for owner in order:
            if isinstance(owner, ClassDefinition):
                for statement in reversed(owner.node.body):
                    if isinstance(statement, ast.FunctionDef) and statement.name == name:
                        return FunctionDefinition(owner.file, statement, owner)
                    if isinstance(statement, ast.Assign) and _binds(statement, name):
                        return None
        return None

    def attribute(self, cls: Base, name: str) -> Expression | None:
        """The value of a class attribute."""
        if isinstance(cls, External):
            return None
        for owner in self.order(cls):
            if isinstance(owner, ClassDefinition):
                for statement in reversed(owner.node.body):
                    if isinstance(statement, ast.Assign | ast.AnnAssign) and _binds(statement, name):
                        return Expression(owner.file, statement.value) if statement.value is not None else None
        return None


def is_property(function: FunctionDefinition) -> bool:
    """Whether a method is read like an attribute."""
    names = {
        decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
        for decorator in function.node.decorator_list
    }
    return bool(names & {"property", "cached_property"})


def is_static(function: FunctionDefinition) -> bool:
    """Whether a method takes no `self`."""
    return any(getattr(decorator, "id", "") == "staticmethod" for decorator in function.node.decorator_list)


def _binds(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _merge(lines: list[list[Base]]) -> list[Base]:
    """Python's own linearisation (C3); where it has no answer, the first base goes first."""
    merged: list[Base] = []
    lines = [list(line) for line in lines if line]
    while lines:
        candidates = [line[0] for line in lines]
        good = next((c for c in candidates if not any(c in line[1:] for line in lines)), candidates[0])
        merged.append(good)
        lines = [[base for base in line if base != good] for line in lines]
        lines = [line for line in lines if line]
    return merged
