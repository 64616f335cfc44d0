"""Which classes a module's attributes may hold, read from its constructors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from eagle_adapters.codegen.sources import ClassSource, FunctionSource, ValueSource, dotted

_PLACEHOLDERS = frozenset({"PPMissingLayer", "ModuleList", "Identity", "Sequential"})


@lru_cache(maxsize=4096)
def attribute_classes(owner: ClassSource, name: str) -> tuple[ClassSource, ...]:
    """The classes that `self.<name>` may be an instance of, or hold as a list; empty when they cannot be read.

    Constructor parameters that stand for a class (`layer_type=...`) are followed to their defaults and to what subclasses
    hand to `super().__init__`.
    """
    lineage = list(owner.lineage())
    handed: dict[str, ClassSource] = {}
    found: dict[str, ClassSource] = {}
    for cls in lineage:
        constructor = next((s for s in cls.node.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)
        if constructor is None:
            continue
        for value in _assigned(constructor, name):
            for candidate in _mentioned(cls, constructor, value, handed):
                found.setdefault(candidate.name, candidate)
        if found:
            break
        handed = {**_handed_on(cls, constructor), **handed}
    return tuple(found.values())


def _assigned(constructor: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                elements = target.elts if isinstance(target, ast.Tuple) else [target]
                if any(dotted(element) == f"self.{name}" for element in elements):
                    yield node.value
        elif isinstance(node, ast.AnnAssign) and dotted(node.target) == f"self.{name}" and node.value is not None:
            yield node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and _appends_to(constructor, node, name)
        ):
            yield node.args[0]


def _appends_to(constructor: ast.FunctionDef, call: ast.Call, name: str) -> bool:
    """`self.layers.append(x)`, or `layers.append(x)` with `self.layers = nn.ModuleList(layers)`."""
    assert isinstance(call.func, ast.Attribute)
    target = dotted(call.func.value)
    if not call.args or target is None:
        return False
    if target == f"self.{name}":
        return True
    return any(
        isinstance(node, ast.Assign)
        and any(dotted(t) == f"self.{name}" for t in node.targets)
        and any(isinstance(n, ast.Name) and n.id == target for n in ast.walk(node.value))
        for node in ast.walk(constructor)
    )


def _mentioned(
    cls: ClassSource, constructor: ast.FunctionDef, value: ast.expr, handed: dict[str, ClassSource], depth: int = 4
) -> Iterator[ClassSource]:
    """Classes named in an expression: directly, by a parameter, a local variable, a local function or a table."""
    if depth == 0:
        return
    local = {n.name: n for n in ast.walk(constructor) if isinstance(n, ast.FunctionDef) and n is not constructor}
    for node in ast.walk(value):
        name = dotted(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if name is None:
            continue
        if name in handed:
            yield handed[name]
            continue
        if name in local:
            for statement in local[name].body:
                for inner in ast.walk(statement):
                    if isinstance(inner, ast.Call):
                        yield from _mentioned(cls, constructor, inner.func, handed, depth - 1)
            continue
        known = cls.module.lookup(name)
        if isinstance(known, ClassSource):
            if known.node.name not in _PLACEHOLDERS and known.definition("forward") is not None:
                yield known
        elif isinstance(known, ValueSource):
            for inner in ast.walk(known.node):
                if isinstance(inner, ast.Name | ast.Attribute):
                    member = known.module.lookup(dotted(inner) or "")
                    if isinstance(member, ClassSource) and member.definition("forward") is not None:
                        yield member
        elif not isinstance(known, FunctionSource) and isinstance(node, ast.Name):
            default = _default(constructor, name)
            if default is not None:
                yield from _mentioned(cls, constructor, default, handed, depth - 1)
            for statement in ast.walk(constructor):
                if isinstance(statement, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == name for t in statement.targets
                ):
                    yield from _mentioned(cls, constructor, statement.value, handed, depth - 1)


def _default(function: ast.FunctionDef, name: str) -> ast.expr | None:
    positional = [*function.args.posonlyargs, *function.args.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(function.args.defaults)) + [
        *function.args.defaults
    ]
    pairs = [
        *zip(positional, defaults, strict=True),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    return next((default for argument, default in pairs if argument.arg == name), None)


def _handed_on(cls: ClassSource, constructor: ast.FunctionDef) -> dict[str, ClassSource]:
    """Classes that a constructor hands to `super().__init__` by keyword."""
    out: dict[str, ClassSource] = {}
    for node in ast.walk(constructor):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            for keyword in node.keywords:
                value = keyword.value
                if keyword.arg and isinstance(value, ast.Name):
                    known = cls.module.lookup(value.id)
                    default = _default(constructor, value.id)
                    if known is None and default is not None:
                        known = cls.module.lookup(dotted(default) or "")
                    if isinstance(known, ClassSource):
                        out[keyword.arg] = known
    return out
