"""What a vLLM model class builds its parts from, read from its constructors; nothing is constructed."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_FACTORIES = ("init_vllm_registered_model", "initialize_model")
"""vLLM's ways to build an inner model by architecture name (0.32.0, model_executor/models/utils.py)."""

_DEPTH = 4
"""How many methods, parameters and class attributes are followed before a look-up gives up."""


@dataclass(frozen=True, slots=True)
class Part:
    """What `self.<name>` may hold.

    Attributes:
        name: the attribute.
        classes: the classes named where it is assigned.
        architectures: architecture names handed to a factory; empty when the checkpoint chooses.
        dynamic: whether a factory builds it.
        where: `file:line` of the assignment.
    """

    name: str
    classes: tuple[type, ...]
    architectures: tuple[str, ...]
    dynamic: bool
    where: str


@lru_cache(maxsize=256)
def parts(cls: type) -> dict[str, Part]:
    """Attribute -> what it holds, for every attribute the constructors of `cls` assign a module to."""
    found: dict[str, Part] = {}
    for owner in cls.__mro__:
        function = vars(owner).get("__init__")
        if function is None or owner.__module__.partition(".")[0] in ("torch", "builtins", "abc", "typing"):
            continue
        statements = list(_statements(function))
        local = {
            target.id: statement.value
            for statement, _ in statements
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        for statement, where in statements:
            for name, assigned in _assignments(statement):
                value = local.get(assigned.id, assigned) if isinstance(assigned, ast.Name) else assigned
                if name not in found:
                    part = _part(cls, function, name, value, where)
                    if part is not None:
                        found[name] = part
    return found


def _statements(function: Any) -> Iterator[tuple[ast.Assign | ast.AnnAssign, str]]:
    tree = _tree(function)
    if tree is None:
        return
    code = inspect.unwrap(function).__code__
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield node, f"{code.co_filename}:{code.co_firstlineno + node.lineno - 1}"


def _tree(function: Any) -> ast.FunctionDef | None:
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(_original(function))))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    return node if isinstance(node, ast.FunctionDef) else None


def _original(function: Any) -> Any:
    """The class's own constructor behind vLLM's compile decorator, which keeps it in a closure as `old_init`."""
    closure = getattr(function, "__closure__", None) or ()
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return next((cell.cell_contents for name, cell in zip(names, closure, strict=True) if name == "old_init"), function)


def _assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    value = getattr(statement, "value", None)
    for target in targets:
        for element in target.elts if isinstance(target, ast.Tuple) else [target]:
            if value is not None and isinstance(element, ast.Attribute) and _is_self(element.value):
                yield element.attr, value


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _part(cls: type, function: Any, name: str, value: ast.expr, where: str) -> Part | None:
    dynamic = False
    architectures: list[str] = []
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FACTORIES:
            dynamic = True
            for keyword in node.keywords:
                if keyword.arg == "architectures" and isinstance(keyword.value, ast.List):
                    architectures += [str(e.value) for e in keyword.value.elts if isinstance(e, ast.Constant)]
    classes = () if dynamic else tuple(dict.fromkeys(_classes(cls, function, value, _DEPTH)))
    if not dynamic and not classes:
        return None
    return Part(name, classes, tuple(architectures), dynamic, where)


def _classes(cls: type, function: Any, value: ast.expr, depth: int) -> Iterator[type]:
    """The module classes an expression names: directly, as a class attribute, a parameter, or a method's result."""
    from torch import nn

    if depth == 0:
        return
    function = inspect.unwrap(_original(function))
    scope = vars(sys.modules[function.__module__])
    called = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    for node in [*called, value]:
        found: Any = None
        if isinstance(node, ast.Name):
            found = scope.get(node.id)
            if found is None:
                found = _default(cls, function, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            holder = cls if node.value.id == "self" else scope.get(node.value.id)
            found = getattr(holder, node.attr, None)
        if isinstance(found, type) and issubclass(found, nn.Module):
            yield found
        elif inspect.isfunction(found) and isinstance(node, ast.Attribute):
            tree = _tree(found)
            for inner in ast.walk(tree) if tree is not None else ():
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield from _classes(cls, found, inner.value, depth - 1)


def _default(cls: type, function: Any, name: str) -> Any:
    """What a constructor parameter stands for: what a subclass hands to `super().__init__`, else its default."""
    for owner in cls.__mro__:
        constructor = vars(owner).get("__init__")
        tree = _tree(constructor) if constructor is not None else None
        if tree is None or inspect.unwrap(_original(constructor)) is function:
            continue
        scope = vars(sys.modules[owner.__module__])
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
                for keyword in node.keywords:
                    if keyword.arg == name and isinstance(keyword.value, ast.Name):
                        return scope.get(keyword.value.id)
    parameter = inspect.signature(function).parameters.get(name)
    return None if parameter is None else parameter.default
