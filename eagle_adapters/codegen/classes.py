"""Which classes a module's attributes may hold, read from its constructors."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

from eagle_adapters.codegen.sources import ClassSource, FunctionSource, Module, ValueSource, dotted

_PLACEHOLDERS = frozenset({"PPMissingLayer", "ModuleList", "Identity", "Sequential"})


@lru_cache(maxsize=4096)
def attribute_classes(owner: ClassSource, name: str) -> tuple[ClassSource, ...]:
    """The classes that `self.<name>` may be an instance of, or hold as a list; empty when they cannot be read.

    Constructor parameters that stand for a class (`layer_type=...`) are followed to their defaults and to what
    subclasses hand to `super().__init__`.
    """
    lineage = list(owner.lineage())
    handed: dict[str, ClassSource] = {}
    found: dict[str, ClassSource] = {}
    for cls in lineage:
        for method in _methods(cls):
            for value in _assigned(method, name):
                for candidate in _mentioned(cls, method, value, handed, set()):
                    found.setdefault(candidate.name, candidate)
        if found:
            break
        for method in _methods(cls):
            handed = {**_handed_on(cls, method), **handed}
    return tuple(found.values())


def _assigned(constructor: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    wanted = {f"self.{name}"} if constructor.name else {name}
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                elements = target.elts if isinstance(target, ast.Tuple) else [target]
                if any(dotted(element) in wanted for element in elements):
                    yield node.value
        elif isinstance(node, ast.AnnAssign) and dotted(node.target) in wanted and node.value is not None:
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
    cls: ClassSource, scope: ast.FunctionDef, value: ast.AST, handed: dict[str, ClassSource], seen: set[tuple[int, str]]
) -> Iterator[ClassSource]:
    """Classes named in an expression: directly, or by an attribute, parameter, local variable, function or table."""
    called = {id(n.func) for n in ast.walk(value) if isinstance(n, ast.Call)}
    bases = {id(n.value) for n in ast.walk(value) if isinstance(n, ast.Subscript)}
    for node in ast.walk(value):
        name = dotted(node) if isinstance(node, ast.Name | ast.Attribute) else None
        if name is None or (id(scope), name) in seen:
            continue
        seen.add((id(scope), name))
        if name in handed:
            yield handed[name]
        elif name.startswith("self."):
            if id(node) not in called | bases or name.count(".") > 1:
                continue
            for method in _methods(cls):
                for assigned in _assigned(method, name.removeprefix("self.")):
                    if assigned is not value:
                        yield from _mentioned(cls, method, assigned, handed, seen)
        else:
            yield from _named(cls, scope, name, handed, seen)


def _named(
    cls: ClassSource, scope: ast.FunctionDef, name: str, handed: dict[str, ClassSource], seen: set[tuple[int, str]]
) -> Iterator[ClassSource]:
    inner = next((n for n in ast.walk(scope) if isinstance(n, ast.FunctionDef) and n.name == name), None)
    if inner is not None and inner is not scope:
        for call in (n for n in ast.walk(inner) if isinstance(n, ast.Call)):
            yield from _mentioned(cls, scope, call.func, handed, seen)
        return
    known = cls.module.lookup(name)
    if isinstance(known, ClassSource):
        if _is_module(known):
            yield known
    elif isinstance(known, ValueSource):
        yield from _members(known.module, [known.node])
    elif isinstance(known, FunctionSource):
        results = [n.value for n in ast.walk(known.node) if isinstance(n, ast.Return) and n.value is not None]
        yield from _members(known.module, results)
    elif "." not in name:
        default = _default(scope, name)
        if default is not None:
            yield from _mentioned(cls, scope, default, handed, seen)
        for statement in ast.walk(scope):
            if isinstance(statement, ast.Assign) and name in _targets(statement):
                yield from _mentioned(cls, scope, statement.value, handed, seen)


def _members(module: Module, nodes: Iterable[ast.AST]) -> Iterator[ClassSource]:
    """The module classes named in a table, or in what a function returns."""
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Name | ast.Attribute):
            member = module.lookup(dotted(node) or "")
            if isinstance(member, ClassSource) and _is_module(member):
                yield member


def _is_module(cls: ClassSource) -> bool:
    if cls.node.name in _PLACEHOLDERS:
        return False
    return cls.definition("forward") is not None or cls.definition("forward_native") is not None


def _methods(cls: ClassSource) -> list[ast.FunctionDef]:
    """The methods of the class itself, the constructor first, and last its body's own assignments as one more."""
    methods = [s for s in cls.node.body if isinstance(s, ast.FunctionDef)]
    values: list[ast.stmt] = [s for s in cls.node.body if isinstance(s, ast.Assign | ast.AnnAssign)]
    body = ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), values, [])
    return [*sorted(methods, key=lambda m: m.name != "__init__"), body]


def _targets(statement: ast.Assign) -> set[str]:
    return {
        n.id
        for target in statement.targets
        for n in ast.walk(target)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


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
