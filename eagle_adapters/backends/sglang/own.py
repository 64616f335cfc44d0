"""What a decoder of SGLang captures by its own code, read from that code: kept only where it is shown to be right.

`layers_to_capture` names the *inputs* of layers in most decoders, which are boundaries, and their outputs in others
(sglang 0.5.23, models/{beam,bailing_moe_v3}.py); some keep a layer's output without its residual (gemma3_causal.py)
or count unrolled layers (nanbeige.py). A capture is trusted when the engine's own residual stream is what it reads:
the layer is handed a collector, or a snapshot is taken before the layer is called.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from eagle_adapters.codegen.iteration import read_iteration
from eagle_adapters.codegen.loops import RESIDUAL_BATCH
from eagle_adapters.codegen.sources import MethodSource, dotted

LIST = "layers_to_capture"
MARK = "_is_layer_to_capture"

_COLLECTORS = frozenset(("capture_output", "captured_last_layer_outputs"))
"""Parameters of a layer that keep the stream at its input (sglang 0.5.23, layers/layer_boundary/stage.py)."""

_SNAPSHOTS = (f"{RESIDUAL_BATCH}.snapshot", ".capture_output")
_LAST = frozenset(("self.end_layer", "len(self.layers)", "self.config.num_hidden_layers"))


class Place(StrEnum):
    """Where the forward looks for the layers to capture."""

    LIST = "list"
    """In `self.layers_to_capture`, by number."""
    MARK = "mark"
    """At the layer, in `_is_layer_to_capture`."""


@dataclass(frozen=True, slots=True)
class OwnCapture:
    """A capture whose numbers are boundaries.

    Attributes:
        place: where the forward looks.
        reaches_last: whether it keeps boundary N too.
    """

    place: Place
    reaches_last: bool


def captures_itself(method: MethodSource) -> bool:
    """Whether the forward keeps states at the places that `layers_to_capture` names, whatever these are there."""
    return any(_sign(node) for node in ast.walk(method.parse()))


def own_capture(method: MethodSource) -> OwnCapture | None:
    """The forward's own capture, or None when it has none or its numbers are not shown to be boundaries."""
    tree = method.parse()
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and read_iteration(node) is not None]
    if not loops or not _batched(tree) or any(_nested(tree, loop) for loop in loops):
        return None
    places: set[Place] = set()
    for loop in loops:
        found = [_place_of(loop, test) for test in _tests(loop)]
        if not found or None in found or not _before_the_layer(loop):
            return None
        places |= {place for place in found if place is not None}
    inside = {id(node) for loop in loops for node in ast.walk(loop)}
    after = [test for test in _tests(tree) if id(test) not in inside]
    if any(not _names_last(test) or not _keeps_stream(tree, test) for test in after):
        return None
    return OwnCapture(Place.LIST if Place.LIST in places else Place.MARK, bool(after))


def _sign(node: ast.AST) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr in (LIST, MARK)) or (
        isinstance(node, ast.Constant) and node.value == MARK
    )


def _batched(tree: ast.AST) -> bool:
    """Whether the engine keeps the residual, so that what its layers and snapshots give is the whole stream."""
    return any(isinstance(n, ast.Call) and dotted(n.func) == f"{RESIDUAL_BATCH}.start" for n in ast.walk(tree))


def _nested(tree: ast.AST, loop: ast.For) -> bool:
    """Whether the layers are run in a loop around their loop."""
    return any(
        isinstance(outer, ast.For | ast.While) and outer is not loop and any(n is loop for n in ast.walk(outer))
        for outer in ast.walk(tree)
    )


def _tests(tree: ast.AST) -> Iterator[ast.expr]:
    """The conditions of the forward that ask whether something is to be captured, whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp) and any(map(_sign, ast.walk(node.test))):
            if isinstance(node.test, ast.UnaryOp | ast.BoolOp) and not any(map(_asks, ast.walk(node.test))):
                continue  # only whether anything is captured at all
            yield node.test


def _asks(node: ast.AST) -> bool:
    """Whether the node asks about one layer: `i in self.layers_to_capture`, or a mark."""
    if isinstance(node, ast.Compare):
        return isinstance(node.ops[0], ast.In) and any(map(_sign, ast.walk(node)))
    return _marked(node) is not None


def _marked(node: ast.AST) -> ast.expr | None:
    """The layer whose mark is read by `layer._is_layer_to_capture` or `getattr(layer, "_is_layer_to_capture", ...)`."""
    if isinstance(node, ast.Attribute) and node.attr == MARK:
        return node.value
    if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) > 1 and _sign(node.args[1]):
        return node.args[0]
    return None


def _place_of(loop: ast.For, test: ast.expr) -> Place | None:
    """Where a condition in the loop looks when it asks about the layer that is called next, and nothing else."""
    iteration = read_iteration(loop)
    assert iteration is not None
    layer = _marked(test)
    if layer is not None:
        return Place.MARK if ast.unparse(layer) in iteration.elements else None
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.In)):
        return None
    targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    numbered = isinstance(test.left, ast.Name) and test.left.id in targets - iteration.elements
    return Place.LIST if numbered and ast.unparse(test.comparators[0]) == f"self.{LIST}" else None


def _before_the_layer(loop: ast.For) -> bool:
    """Whether every capture of the loop is the layer's own, at its input, or a snapshot taken before it is called."""
    iteration = read_iteration(loop)
    assert iteration is not None
    calls = [n for n in ast.walk(loop) if isinstance(n, ast.Call) and _function(n) in iteration.elements]
    handed = [k.value for call in calls for k in call.keywords if k.arg in _COLLECTORS]
    names = {value.id for value in handed if isinstance(value, ast.Name)}
    first = min(call.lineno for call in calls)
    for node in ast.walk(loop):
        if not isinstance(node, ast.If | ast.IfExp) or not any(map(_asks, ast.walk(node.test))):
            continue
        if isinstance(node, ast.If):
            if node.lineno > first or not any(map(_snapshot, ast.walk(node))):
                return False
        elif not any(node is value for value in handed) and not _assigned(loop, node, names):
            return False
    return True


def _function(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "forward":
        function = function.value
    return ast.unparse(function)


def _assigned(loop: ast.For, value: ast.IfExp, names: set[str]) -> bool:
    return any(
        isinstance(n, ast.Assign)
        and n.value is value
        and isinstance(n.targets[0], ast.Name)
        and n.targets[0].id in names
        for n in ast.walk(loop)
    )


def _snapshot(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_SNAPSHOTS)


def _names_last(test: ast.expr) -> bool:
    """Whether a condition after the loop asks about boundary N."""
    asked = [n for n in ast.walk(test) if isinstance(n, ast.Compare) and _asks(n)]
    return len(asked) == 1 and ast.unparse(asked[0].left) in _LAST


def _keeps_stream(tree: ast.AST, test: ast.expr) -> bool:
    """Whether what the condition guards keeps the stream before the final norm."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.test is test:
            return any(map(_snapshot, ast.walk(node)))
        if isinstance(node, ast.Call) and dotted(node.func) == f"{RESIDUAL_BATCH}.final_norm":
            for keyword in node.keywords:
                if keyword.arg == "capture" and isinstance(keyword.value, ast.IfExp) and keyword.value.test is test:
                    return True
    return False
