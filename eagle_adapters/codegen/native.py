"""Take an engine's own capture out of a forward: what is left is the forward as it runs when nothing is captured.

`strip(method)` evaluates every test as it is with capture off and drops what only serves capture. It is how a class
whose own capture is wrong or cannot reach every boundary is captured anew.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable

from eagle_adapters.codegen.sources import MethodSource, dotted
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError

SIGNS = frozenset(
    (
        "_maybe_add_hidden_state",
        "aux_hidden_state_layers",
        "collect_remote_aux_hidden_states",
        "pack_local_aux_hidden_states",
        "layers_to_capture",
        "dspark_layers_to_capture",
        "capture_aux_hidden_states",
        "captured_last_layer_outputs",
        "_is_layer_to_capture",
        "AuxHiddenStateList",
        "AuxHiddenStatePacker",
    )
)
"""Names that appear in a forward only to capture states (vllm 0.32.0 interfaces.py, sglang 0.5.23
layers/aux_hidden_states.py)."""


def captures(tree: ast.AST) -> str | None:
    """The first name in `tree` that shows a capture, or None."""
    for node in ast.walk(tree):
        for name in _names(node):
            if name in SIGNS:
                return name
    return None


def strip(method: MethodSource) -> MethodSource:
    """The same method without its own capture; its digest stays that of the original text.

    Raises:
        AdaptationError: EA426, something in the method still depends on the capture.
    """
    tree = method.parse()
    stripper = _Stripper(_collectors(tree))
    tree.body = stripper.block(tree.body)
    left = next((node for node in ast.walk(tree) if stripper.is_capture(node)), None)
    if left is not None:
        raise AdaptationError(
            Diagnostic(
                "EA426",
                f"the capture of {method.owner}.{method.name} cannot be taken out",
                expected="statements that only capture",
                found=ast.unparse(left),
                where=method.where(left),
            )
        )
    return dataclasses.replace(method, tree=ast.fix_missing_locations(tree))


def _collectors(tree: ast.FunctionDef) -> set[str]:
    """Local names that hold captured states, or functions that keep them."""
    names: set[str] = set()
    changed = True
    while changed:
        before = len(names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    collects = not isinstance(node.value, ast.Call) or _starts(node.value, names)
                    if collects and isinstance(target, ast.Name):
                        names |= {target.id} if "aux_hidden" in target.id or _mentions(node.value, names) else set()
            elif isinstance(node, ast.FunctionDef) and node is not tree and _mentions(node, names):
                names.add(node.name)
        changed = len(names) != before
    return names


def _starts(call: ast.Call, names: set[str]) -> bool:
    """Whether the call makes or asks for a collection, as against a layer that is handed one."""
    function = dotted(call.func) or ""
    last = function.split(".")[-1]
    return last in SIGNS or last in ("list", "getattr", "len") or function.split(".")[0] in names


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(name in SIGNS or name in names for inner in ast.walk(node) for name in _names(inner))


def _names(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


class _Stripper(ast.NodeTransformer):
    def __init__(self, collectors: set[str]) -> None:
        self.collectors = collectors

    def is_capture(self, node: ast.AST) -> bool:
        """Whether the node itself is a name of the capture."""
        return any(name in SIGNS or name in self.collectors for name in _names(node))

    def uses(self, node: ast.AST) -> bool:
        return any(self.is_capture(inner) for inner in ast.walk(node))

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in body:
            out += self.statement(statement)
            if out and isinstance(out[-1], ast.Return):
                break  # what follows was only reached with a capture
        return out

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        if not self.uses(node):
            return [node]
        if isinstance(node, ast.If):
            value = self.off(node.test)
            if value is not None:
                return self.block(node.body if value else node.orelse)
            node.test = self.rest(node.test)
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            if not node.body and not node.orelse:
                return []
            node.body = node.body or [ast.Pass()]
            return [node]
        if isinstance(node, ast.For | ast.While | ast.With):
            node.body = self.block(node.body) or [ast.Pass()]
            return [node]
        if isinstance(node, ast.Return) and node.value is not None:
            node.value = self.result(node.value)
            return [node]
        if isinstance(node, ast.Expr | ast.FunctionDef | ast.AugAssign):
            return [] if not isinstance(node, ast.AugAssign) or self.uses(node.target) else [node]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if all(isinstance(t, ast.Name) and t.id in self.collectors for t in targets):
                return []
            return [self.visit(node)]
        return [node]

    def result(self, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.IfExp) and (known := self.off(value.test)) is not None:
            return self.result(value.body if known else value.orelse)
        if isinstance(value, ast.Tuple):
            kept = [element for element in value.elts if not self.uses(element)]
            return kept[0] if len(kept) == 1 else ast.Tuple(kept, ast.Load())
        changed = self.visit(value)
        assert isinstance(changed, ast.expr)
        return changed

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [k for k in node.keywords if not self.uses(k)]
        return self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        kept = [(k, v) for k, v in zip(node.keys, node.values, strict=True) if k is not None or not self.uses(v)]
        node.keys, node.values = [k for k, _ in kept], [v for _, v in kept]
        return self.generic_visit(node)

    def rest(self, test: ast.expr) -> ast.expr:
        """An undecided test without the parts that are decided."""
        if isinstance(test, ast.BoolOp):
            parts = [self.rest(value) for value in test.values if self.off(value) is None]
            return parts[0] if len(parts) == 1 else ast.BoolOp(test.op, parts)
        return test

    def off(self, test: ast.expr) -> bool | None:
        """The truth of a test while nothing is captured; None when it depends on something else."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.off(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self.off(value) for value in test.values]
            if isinstance(test.op, ast.And):
                return False if False in parts else (True if all(p is True for p in parts) else None)
            return True if True in parts else (False if all(p is False for p in parts) else None)
        if not self.uses(test):
            return None
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            operator = test.ops[0]
            if isinstance(operator, ast.In | ast.Gt | ast.IsNot | ast.NotEq):
                return False
            return True if isinstance(operator, ast.Is | ast.Eq | ast.NotIn) else None
        return False
