"""Read the head of a `for` over layers: which list it walks and how the absolute layer index is spelled inside it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from eagle_adapters.codegen.sources import dotted


@dataclass(frozen=True, slots=True)
class Iteration:
    """The head of a loop over layers.

    Attributes:
        layers: the list, as written (`self.layers`).
        elements: every spelling of the current layer inside the body (`layer`, `self.layers[i]`).
        first: absolute index of the first layer that this rank runs, as an expression (`0`, `self.start_layer`).
        index: absolute index of the current layer, as an expression valid at the end of the body, or None when a
            counter must be added.
        bounded: whether the loop runs only the rank's own part of the list.
    """

    layers: str
    elements: frozenset[str]
    first: str
    index: str | None
    bounded: bool


@dataclass(frozen=True, slots=True)
class _Walk:
    """An iterable over layers: yields `target` shapes; `offset` says what an enumeration number means."""

    layers: str
    first: str
    bounded: bool
    target: ast.expr
    numbers: tuple[tuple[str, str], ...] = ()
    """Pairs (variable, expression of the absolute index in terms of it)."""


def read_iteration(node: ast.For) -> Iteration | None:
    """The head of `node` when it walks a list of modules held by `self` and uses its elements, else None."""
    ranged = _range(node)
    if ranged is not None:
        return ranged
    walk = _walk(node.iter, node.target, node)
    if walk is None or not isinstance(walk.target, ast.Name):
        return None
    layer = walk.target.id
    if not _called(node, {layer}):
        return None
    rebound = _rebound(node)
    index = next((expression for name, expression in walk.numbers if name not in rebound and name != "_"), None)
    return Iteration(walk.layers, frozenset({layer}), walk.first, index, walk.bounded)


def _walk(iterable: ast.expr, target: ast.expr, loop: ast.For) -> _Walk | None:
    if isinstance(iterable, ast.Call):
        function = (dotted(iterable.func) or "").split(".")[-1]
        if function == "enumerate" and iterable.args and isinstance(target, ast.Tuple) and len(target.elts) == 2:
            inner = _walk(iterable.args[0], target.elts[1], loop)
            if inner is None or not isinstance(target.elts[0], ast.Name):
                return None
            number = _absolute(target.elts[0].id, _start(iterable), inner.first)
            return _Walk(
                inner.layers, inner.first, inner.bounded, inner.target, ((target.elts[0].id, number), *inner.numbers)
            )
        if function == "islice" and len(iterable.args) in (2, 3):
            inner = _walk(iterable.args[0], target, loop)
            if inner is None or inner.bounded:
                return None
            bounds = iterable.args[1:]
            first = "0" if len(bounds) == 1 or _is_none(bounds[0]) else ast.unparse(bounds[0])
            return _Walk(inner.layers, first, True, inner.target, inner.numbers)
        if function == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(iterable.args):
            found = [w for a, t in zip(iterable.args, target.elts, strict=True) if (w := _walk(a, t, loop)) is not None]
            called = [w for w in found if isinstance(w.target, ast.Name) and _called(loop, {w.target.id})]
            return called[0] if len(called) == 1 else None
        return None
    if isinstance(iterable, ast.Subscript) and isinstance(iterable.slice, ast.Slice):
        name = _list_name(iterable.value)
        if name is None or iterable.slice.step is not None:
            return None
        lower = iterable.slice.lower
        return _Walk(name, "0" if lower is None else ast.unparse(lower), True, target)
    name = _list_name(iterable)
    return None if name is None else _Walk(name, "0", False, target)


def _range(node: ast.For) -> Iteration | None:
    head = node.iter
    if not (isinstance(head, ast.Call) and dotted(head.func) == "range" and isinstance(node.target, ast.Name)):
        return None
    if len(head.args) not in (1, 2):
        return None
    first = "0" if len(head.args) == 1 else ast.unparse(head.args[0])
    index = node.target.id
    subscripts = {
        ast.unparse(n): n.value
        for n in ast.walk(node)
        if isinstance(n, ast.Subscript)
        and isinstance(n.slice, ast.Name)
        and n.slice.id == index
        and _list_name(n.value) is not None
    }
    for text, owner in subscripts.items():
        names = {
            statement.targets[0].id
            for statement in ast.walk(node)
            if isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
            and ast.unparse(statement.value) == text
        }
        if _called(node, {text, *names}):
            name = _list_name(owner)
            assert name is not None
            whole = len(head.args) == 1 and ast.unparse(head.args[0]) in (f"len({name})", "self.num_layers")
            usable = index not in _rebound(node)
            return Iteration(name, frozenset({text, *names}), first, index if usable else None, not whole)
    return None


def _called(node: ast.For, elements: set[str]) -> bool:
    """Whether an element is called and the result assigned: a loop that only sets flags on layers does not run them."""
    for statement in ast.walk(node):
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            function = statement.value.func
            if isinstance(function, ast.Attribute) and function.attr == "forward":
                function = function.value
            if ast.unparse(function) in elements:
                return True
    return False


def _list_name(node: ast.expr) -> str | None:
    name = dotted(node) if isinstance(node, ast.Attribute) else None
    return name if name is not None and name.startswith("self.") else None


def _start(call: ast.Call) -> str:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "start"] or call.args[1:2]
    return ast.unparse(given[0]) if given else "0"


def _absolute(variable: str, start: str, first: str) -> str:
    if start == first:
        return variable
    if start == "0":
        return f"{first} + {variable}"
    return f"{first} + {variable} - {start}"


def _rebound(node: ast.For) -> set[str]:
    """Variables that the body stores to, the loop's own targets not counted."""
    return {
        n.id
        for statement in node.body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
