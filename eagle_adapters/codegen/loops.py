"""Find the loop over the decoder layers in a forward: what it calls, what it carries, and which layer it is at.

`read_forward(method)` gives a `Forward` or raises with the reason; nothing about the residual form is decided here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn

from eagle_adapters.codegen.iteration import Iteration, read_iteration
from eagle_adapters.codegen.sources import MethodSource, dotted
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError

RESIDUAL_BATCH = "residual_batch"
"""Name under which sglang 0.5.23 models import `layers/layer_boundary/residual/batch.py`, which keeps the residual in
the batch."""

PIPELINE_TYPES = ("IntermediateTensors", "PPProxyTensors", f"{RESIDUAL_BATCH}.to_pp")
"""What the engines call the value handed to the next pipeline rank."""


class ReturnKind(StrEnum):
    """What a return statement of a forward hands out."""

    FINAL = "final"
    """The result, after the layers."""
    PIPELINE = "pipeline"
    """The state for the next pipeline rank."""
    EARLY = "early"
    """A result that was not computed by the loop."""


@dataclass(frozen=True, slots=True)
class LayerLoop:
    """The loop over the layers.

    Attributes:
        iteration: which list is walked and how the absolute layer index is spelled.
        hidden: the variable that carries the stream.
        residual: the second variable that goes into a layer and comes out of it, or None.
        batch: the variable of the batch object when the engine keeps the residual there, or None.
        calls: the layer calls, one per branch.
        changed_before: `file:line` of statements that change the stream in an iteration before the layer.
        where: `file:line` of the `for`.
        node: the `for` in `Forward.tree`.
    """

    iteration: Iteration
    hidden: str
    residual: str | None
    batch: str | None
    calls: tuple[ast.Call, ...] = field(compare=False, repr=False)
    changed_before: tuple[str, ...]
    where: str
    node: ast.For = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Return:
    """A return statement and what it hands out."""

    kind: ReturnKind
    where: str
    node: ast.Return = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward that runs the layers.

    Attributes:
        method: its source.
        tree: its syntax tree; `loops`, `returns` and `detours` point into it.
        loops: one, or one per exclusive branch.
        returns: every return statement of the method itself.
        detours: statements outside the loops that hand the list of layers to other code, which then runs them unseen.
    """

    method: MethodSource
    tree: ast.FunctionDef = field(compare=False, repr=False)
    loops: tuple[LayerLoop, ...]
    returns: tuple[Return, ...]
    detours: tuple[ast.stmt, ...] = field(compare=False, repr=False)

    @property
    def loop(self) -> LayerLoop:
        """The first loop; the others carry the same variables."""
        return self.loops[0]


def read_forward(method: MethodSource, layers: str | None = None) -> Forward:
    """The loop or loops of `method` over the layers, with the returns around them.

    Args:
        method: the source of a decoder's forward.
        layers: the list that is meant (`layers`, `h`, ...), when the class has more than one.

    Raises:
        AdaptationError: EA421 no loop, EA422 a loop that cannot be rewritten, EA423 a layer call that is not
            understood, EA424 layers that run more than once.
    """
    tree = method.parse()
    parents = _parents(tree)
    found = [
        (node, iteration)
        for node in _own_nodes(tree)
        if isinstance(node, ast.For) and (iteration := read_iteration(node)) is not None
    ]
    if layers is not None:
        found = [(node, iteration) for node, iteration in found if iteration.layers.split(".")[-1] == layers]
    if not found:
        _refuse(
            "EA421",
            f"{method.owner}.{method.name} has no loop over its layers",
            method,
            tree,
            "for layer in self.layers",
        )
    lists = sorted({iteration.layers for _, iteration in found})
    if len(lists) > 1:
        _refuse(
            "EA422",
            f"{method.owner}.{method.name} loops over more than one list of layers",
            method,
            found[0][0],
            "one list",
            ", ".join(lists),
        )
    for i, (first, _) in enumerate(found):
        for second, _ in found[i + 1 :]:
            if not _exclusive(first, second, parents):
                _refuse(
                    "EA422",
                    f"{method.owner}.{method.name} walks its layers in more than one loop",
                    method,
                    second,
                    "one loop, or one per branch",
                )
    loops = tuple(_read_loop(method, tree, node, iteration, parents) for node, iteration in found)
    if len({(loop.hidden, loop.residual, loop.batch) for loop in loops}) > 1:
        _refuse(
            "EA422", "the loops of the branches carry different variables", method, loops[1].node, "the same variables"
        )
    returns = tuple(
        Return(_return_kind(node, [loop.node for loop in loops], parents), method.where(node), node)
        for node in _own_nodes(tree)
        if isinstance(node, ast.Return)
    )
    detours = tuple(_detours(tree, loops, parents))
    return Forward(method, tree, loops, returns, detours)


def _read_loop(
    method: MethodSource, tree: ast.FunctionDef, node: ast.For, iteration: Iteration, parents: dict[ast.AST, ast.AST]
) -> LayerLoop:
    ancestor = parents.get(node)
    while ancestor is not None and ancestor is not tree:
        if isinstance(ancestor, ast.For | ast.While):
            _refuse(
                "EA424",
                "the layers run more than once per forward",
                method,
                node,
                "each layer once",
                found="a loop around the loop",
            )
        ancestor = parents.get(ancestor)
    if node.orelse:
        _refuse("EA422", "the loop over the layers has an else", method, node, "no else")
    for inner in _loop_nodes(node):
        if isinstance(inner, ast.Break | ast.Return):
            _refuse(
                "EA422",
                "the loop over the layers can be left early",
                method,
                inner,
                "a loop over all layers",
                ast.unparse(inner),
            )
    calls = [call for statement in node.body for call in _calls_of(statement, iteration)]
    if not calls:
        _refuse(
            "EA423", "the loop does not call the layer", method, node, "a call of the layer", ast.unparse(node.iter)
        )
    carried = [_carried(method, node, call, parents) for call in calls]
    if len(set(carried)) != 1:
        _refuse(
            "EA423", "the layer calls of the branches carry different variables", method, calls[0], "the same variables"
        )
    names = carried[0]
    if not 1 <= len(names) <= 2:
        _refuse(
            "EA423",
            f"the layer carries {len(names)} variables",
            method,
            calls[0],
            "hidden, or hidden and residual",
            ", ".join(names) or "none",
        )
    hidden, residual = names[0], names[1] if len(names) == 2 else None
    if residual is not None and "resid" in hidden and "resid" not in residual:
        hidden, residual = residual, hidden
    first_call = min(call.lineno for call in calls)
    changed_before = tuple(
        method.where(inner)
        for inner in _loop_nodes(node)
        if isinstance(inner, ast.Assign | ast.AugAssign | ast.AnnAssign)
        and inner.lineno < first_call
        and {hidden, residual} & _stored(inner)
    )
    return LayerLoop(
        iteration, hidden, residual, _batch(tree, node), tuple(calls), changed_before, method.where(node), node
    )


def _calls_of(statement: ast.stmt, iteration: Iteration) -> Iterator[ast.Call]:
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "forward":
            function = function.value
        if ast.unparse(function) in iteration.elements:
            yield node


def _carried(method: MethodSource, loop: ast.For, call: ast.Call, parents: dict[ast.AST, ast.AST]) -> tuple[str, ...]:
    """The variables that go into the layer call and come out of it, in the order of its results."""
    assign = parents[call]
    if not isinstance(assign, ast.Assign) or len(assign.targets) != 1 or assign.value is not call:
        _refuse(
            "EA423",
            "the result of the layer is not plainly assigned",
            method,
            call,
            "hidden = layer(...)",
            ast.unparse(assign),
        )
    target = assign.targets[0]
    elements = target.elts if isinstance(target, ast.Tuple) else [target]
    results = [e.id if isinstance(e, ast.Name) else "" for e in elements]
    given = {
        node.id
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
        for node in ([argument] if isinstance(argument, ast.Name) else [])
    }
    # `out = layer(hidden); hidden = out` and `hidden = out[0]` carry hidden, not out.
    for statement in _loop_nodes(loop):
        if isinstance(statement, ast.Assign) and statement.lineno > assign.lineno and len(statement.targets) == 1:
            alias, value = statement.targets[0], statement.value
            if isinstance(alias, ast.Name) and isinstance(value, ast.Name) and value.id in results:
                results[results.index(value.id)] = alias.id
            elif (
                isinstance(alias, ast.Name)
                and isinstance(value, ast.Subscript)
                and isinstance(value.value, ast.Name)
                and value.value.id in results
                and isinstance(value.slice, ast.Constant)
                and value.slice.value == 0
            ):
                results[results.index(value.value.id)] = alias.id
    return tuple(name for name in dict.fromkeys(results) if name in given)


def _batch(tree: ast.FunctionDef, loop: ast.For) -> str | None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) == f"{RESIDUAL_BATCH}.start" and node.args:
            inside = any(node is inner for inner in ast.walk(loop))
            if not inside:
                return ast.unparse(node.args[0])
    return None


def _return_kind(node: ast.Return, loops: list[ast.For], parents: dict[ast.AST, ast.AST]) -> ReturnKind:
    if node.value is not None:
        value = node.value
        if isinstance(value, ast.Call) and (dotted(value.func) or "").endswith(PIPELINE_TYPES):
            return ReturnKind.PIPELINE
    child: ast.AST = node
    while (parent := parents.get(child)) is not None:
        if isinstance(parent, ast.If) and "is_last_rank" in ast.unparse(parent.test):
            negative = isinstance(parent.test, ast.UnaryOp) and isinstance(parent.test.op, ast.Not)
            in_body = any(child is statement for statement in parent.body)
            if negative == in_body:
                return ReturnKind.PIPELINE
        child = parent
    reached = any(loop.lineno < node.lineno and not _exclusive(loop, node, parents) for loop in loops)
    return ReturnKind.FINAL if reached else ReturnKind.EARLY


def _detours(
    tree: ast.FunctionDef, loops: tuple[LayerLoop, ...], parents: dict[ast.AST, ast.AST]
) -> Iterator[ast.stmt]:
    names = {loop.iteration.layers for loop in loops}
    inside = {id(node) for loop in loops for node in ast.walk(loop.node)}
    seen: set[int] = set()
    for node in _own_nodes(tree):
        if not isinstance(node, ast.Call) or id(node) in inside or dotted(node.func) == "len":
            continue
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            inner = argument.value if isinstance(argument, ast.Subscript) else argument
            if dotted(inner) in names:
                statement: ast.AST = node
                while not isinstance(statement, ast.stmt):
                    statement = parents[statement]
                if id(statement) not in seen:
                    seen.add(id(statement))
                    yield statement


def _own_nodes(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes inside it, in source order."""

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        for child in ast.iter_child_nodes(node):
            yield child
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                yield from walk(child)

    for statement in tree.body:
        yield statement
        yield from walk(statement)


def _loop_nodes(loop: ast.For) -> Iterator[ast.AST]:
    """The nodes of a loop's body that belong to this loop: an inner loop's `break` and `continue` do not."""

    def walk(nodes: Iterable[ast.AST], own: bool) -> Iterator[ast.AST]:
        for child in nodes:
            if isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
                continue
            if own or not isinstance(child, ast.Break | ast.Continue):
                yield child
            yield from walk(ast.iter_child_nodes(child), own and not isinstance(child, ast.For | ast.While))

    yield from walk(loop.body, own=True)


def _exclusive(first: ast.AST, second: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether the two nodes stand in different branches of one `if`."""
    branches = _branches(first, parents)
    return any(branches.get(test, side) != side for test, side in _branches(second, parents).items())


def _branches(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> dict[ast.AST, str]:
    out: dict[ast.AST, str] = {}
    while (parent := parents.get(node)) is not None:
        if isinstance(parent, ast.If):
            out[parent] = "body" if any(node is s for s in parent.body) else "orelse"
        node = parent
    return out


def _stored(statement: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _parents(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def _refuse(
    code: str, message: str, method: MethodSource, node: ast.AST, expected: str, found: str | None = None
) -> NoReturn:
    raise AdaptationError(Diagnostic(code, message, expected=expected, found=found, where=method.where(node)))
