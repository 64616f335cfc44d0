"""Decide from code what the true residual stream is: a sum of two tensors, one of them alone, or something else.

`read_residual(forward, decoder)` follows the stream through the decoder layer's and the norms' own source (`ledger`):
a pair is a sum when `hidden + residual` still contains both inputs, and hidden is complete when it contains its own
input and ignores the residual. What the decoder does after the loop must agree. Nothing is assumed: what cannot be
shown is `UNKNOWN`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eagle_adapters.codegen.batched import read_batched
from eagle_adapters.codegen.carry import Carry, added, source_of
from eagle_adapters.codegen.classes import attribute_classes
from eagle_adapters.codegen.ledger import FLOAT16, Ledger, TooManyPathsError
from eagle_adapters.codegen.loops import Forward, LayerLoop
from eagle_adapters.codegen.sources import ClassSource, dotted
from eagle_adapters.codegen.streams import Evidence, Residual, StreamForm

_STREAM_SIGNS = ("altup", "hyper_connection", "hc_mult", "mhc", "hc_pre", "hc_head", "num_residual_streams")
_DEFERRED_SIGNS = ("layer_communicator", "should_allreduce_fusion", "_sglang_needs_allreduce_fusion")


def read_residual(forward: Forward, decoder: ClassSource, layers: Sequence[ClassSource] = ()) -> Residual:
    """The residual form of the stream that `forward` carries.

    Args:
        forward: the decoder's forward.
        decoder: the class it belongs to (the class in use, not the base that defines the method).
        layers: the classes of the layers, when known from live modules; else they are read from the constructor.
    """
    loop = forward.loop
    where = loop.where
    classes = tuple(layers) or attribute_classes(decoder, loop.iteration.layers.removeprefix("self."))
    classes = tuple(c for c in classes if c.definition("forward") is not None)
    streams = _several_streams(forward, classes)
    if streams is not None:
        return Residual(StreamForm.STREAMS, (streams,))
    if not classes:
        return Residual(StreamForm.UNKNOWN, (Evidence(where, f"the class of {loop.iteration.layers} cannot be read"),))
    if loop.batch is not None:
        return read_batched(forward, classes)
    partial, sharded = _partial(classes), _sharded(classes)
    if loop.residual is None:
        form: StreamForm | None = StreamForm.SINGLE
        shown = [_Shown(form, Evidence(where, f"the loop carries {loop.hidden} alone"))]
    else:
        shown = [_layer_form(loop, cls) for cls in classes]
        shown += [after] if (after := _after_loop(forward, decoder)) is not None else []
        forms = {each.form for each in shown} - {None}
        form = StreamForm.UNKNOWN if len(forms) > 1 else next(iter(forms), StreamForm.COMPLETE)
    float16 = next((Evidence(each.float16, "the stream is scaled in float16") for each in shown if each.float16), None)
    return Residual(
        form or StreamForm.COMPLETE,
        (*(each.evidence for each in shown), *(limit for limit in (partial, sharded, float16) if limit is not None)),
        tensor_parallel_safe=partial is None,
        float16_safe=float16 is None,
        sequence_parallel_safe=sharded is None,
    )


def _several_streams(forward: Forward, classes: Sequence[ClassSource]) -> Evidence | None:
    for node, name in _names(forward.tree):
        if any(sign in name.lower() for sign in _STREAM_SIGNS):
            return Evidence(forward.method.where(node), f"`{name}`: several parallel residual streams")
    for cls in classes:
        for node, name in _names(cls.node):
            if any(sign in name.lower() for sign in _STREAM_SIGNS):
                where = f"{cls.module.file}:{getattr(node, 'lineno', 0)}"
                return Evidence(where, f"`{name}`: several parallel residual streams")
    return None


def _partial(classes: Sequence[ClassSource]) -> Evidence | None:
    """Where a layer may hand on a sum that is not reduced over tensor-parallel ranks yet."""
    for cls in classes:
        reduces = any("all_reduce" in name for _, name in _names(cls.node))
        for node, name in _names(cls.node):
            unreduced = (
                isinstance(node, ast.keyword) and name == "reduce_results" and ast.unparse(node.value) == "False"
            )
            if name in _DEFERRED_SIGNS or (unreduced and not reduces):
                says = f"`{name}`: a layer may hand on a partial sum under tensor parallelism"
                return Evidence(f"{cls.module.file}:{getattr(node, 'lineno', 0)}", says)
    return None


def _sharded(classes: Sequence[ClassSource]) -> Evidence | None:
    """Where a layer may keep only the rank's share of the rows."""
    for cls in classes:
        for node, name in _names(cls.node):
            if name == "sequence_parallel_chunk":
                says = "a layer may hand on only the rank's share of the rows under sequence parallelism"
                return Evidence(f"{cls.module.file}:{getattr(node, 'lineno', 0)}", says)
    return None


def _names(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node, node.attr
        elif isinstance(node, ast.Name):
            yield node, node.id
        elif isinstance(node, ast.keyword) and node.arg:
            yield node, node.arg


@dataclass(frozen=True, slots=True)
class _Shown:
    """What one piece of code shows; form None fits a sum and a complete hidden alike."""

    form: StreamForm | None
    evidence: Evidence
    float16: str | None = None


def _layer_form(loop: LayerLoop, cls: ClassSource) -> _Shown:
    found = cls.definition("forward")
    assert found is not None
    owner, function = found
    where = f"{owner.module.file}:{function.lineno}"
    call = loop.calls[0]
    hidden, residual = _parameter(call, function, loop.hidden), _parameter(call, function, loop.residual or "")
    place = _positions(loop, call)
    if hidden is None or residual is None or place is None:
        return _Shown(
            StreamForm.UNKNOWN, Evidence(where, "the layer call cannot be matched with the layer's parameters")
        )
    ledger = Ledger(cls)
    try:
        results = ledger.run("forward", {hidden: source_of("hidden"), residual: source_of("residual")})
    except TooManyPathsError:
        return _Shown(StreamForm.UNKNOWN, Evidence(where, "the layer has too many paths to follow"))
    pairs = [pair for result in results if (pair := _pair(result, place)) is not None]
    name = cls.node.name
    if not pairs or len(pairs) < len(results):
        return _Shown(StreamForm.UNKNOWN, Evidence(where, f"{name}.forward does not return the pair on every path"))
    float16 = ledger.notes.pop(FLOAT16, None)
    if all(added(h, r).addends == {"hidden", "residual"} for h, r in pairs):
        detail = "; ".join(f"{call} at {line}" for call, line in sorted(ledger.notes.items()))
        says = f"{name} keeps both inputs in hidden + residual" + (f" ({detail})" if detail else "")
        return _Shown(StreamForm.SUM, Evidence(where, says), float16)
    if all("residual" not in h.reads | r.reads and "hidden" in h.reads for h, r in pairs):
        if all(r.none for _, r in pairs):
            return _Shown(
                None, Evidence(where, f"{name} puts the whole stream in hidden and hands on no residual"), float16
            )
        return _Shown(StreamForm.COMPLETE, Evidence(where, f"{name} ignores the residual it is given"), float16)
    return _Shown(
        StreamForm.UNKNOWN, Evidence(where, f"{name}: neither hidden + residual nor hidden alone keeps the stream")
    )


def _pair(result: Carry, place: tuple[int, int]) -> tuple[Carry, Carry] | None:
    if result.items is None or len(result.items) <= max(place):
        return None
    return result.items[place[0]], result.items[place[1]]


def _positions(loop: LayerLoop, call: ast.Call) -> tuple[int, int] | None:
    for node in ast.walk(loop.node):
        if isinstance(node, ast.Assign) and node.value is call and isinstance(node.targets[0], ast.Tuple):
            names = [e.id if isinstance(e, ast.Name) else "" for e in node.targets[0].elts]
            if loop.hidden in names and loop.residual in names:
                return names.index(loop.hidden), names.index(loop.residual or "")
    return None


def _parameter(call: ast.Call, function: ast.FunctionDef, variable: str) -> str | None:
    """The parameter of the layer's forward that receives `variable`."""
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Name) and keyword.value.id == variable:
            return keyword.arg
    names = [a.arg for a in [*function.args.posonlyargs, *function.args.args]][1:]
    for i, argument in enumerate(call.args):
        if isinstance(argument, ast.Name) and argument.id == variable:
            return names[i] if i < len(names) else None
    return None


def _after_loop(forward: Forward, decoder: ClassSource) -> _Shown | None:
    """What the code after the loop takes for the stream."""
    loop = forward.loop
    end = max(each.node.end_lineno or each.node.lineno for each in forward.loops)
    for node in sorted(
        (n for n in ast.walk(forward.tree) if isinstance(n, ast.Call | ast.BinOp) and n.lineno > end),
        key=lambda n: (n.lineno, n.col_offset),
    ):
        where = forward.method.where(node)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Add) and {ast.unparse(node.left), ast.unparse(node.right)} == {
                loop.hidden,
                loop.residual,
            }:
                return _Shown(StreamForm.SUM, Evidence(where, f"after the loop: {ast.unparse(node)}"))
            continue
        given = [ast.unparse(a) for a in [*node.args, *(k.value for k in node.keywords)]]
        name = dotted(node.func) or ""
        if loop.hidden not in given or not name.startswith("self."):
            continue
        if loop.residual not in given:
            if _inside_none_test(forward, node, loop.residual or ""):
                continue
            return _Shown(
                StreamForm.COMPLETE, Evidence(where, f"after the loop: {ast.unparse(node)} takes hidden alone")
            )
        for norm in attribute_classes(decoder, name.removeprefix("self.")):
            if norm.definition("forward") is None and norm.definition("forward_native") is None:
                continue
            adds = _norm_adds(norm)
            if adds is not None:
                form = StreamForm.SUM if adds else StreamForm.COMPLETE
                does = "adds" if adds else "does not add"
                says = f"after the loop: {ast.unparse(node)}; {norm.node.name} {does} the residual ({norm.where})"
                return _Shown(form, Evidence(where, says))
        return None
    return None


def _norm_adds(norm: ClassSource) -> bool | None:
    """Whether a norm called with two tensors adds them; None when its code does not show it."""
    name = "forward_native" if norm.definition("forward_native") is not None else "forward"
    found = norm.definition(name)
    if found is None:
        return None
    parameters = [a.arg for a in found[1].args.args][1:3]
    if len(parameters) < 2:
        return None
    try:
        results = Ledger(norm).run(name, {parameters[0]: source_of("hidden"), parameters[1]: source_of("residual")})
    except TooManyPathsError:
        return None
    seconds = [r.items[1] for r in results if r.items is not None and len(r.items) == 2]
    if not seconds:
        return None
    if all(s.addends == {"hidden", "residual"} for s in seconds):
        return True
    return False if all("hidden" not in s.reads for s in seconds) else None


def _inside_none_test(forward: Forward, node: ast.AST, residual: str) -> bool:
    """Whether the node runs only when there is no residual (`if residual is None:`, or the else of its opposite)."""
    for branch in ast.walk(forward.tree):
        if isinstance(branch, ast.If):
            test = ast.unparse(branch.test)
            side = (
                branch.body
                if test == f"{residual} is None"
                else branch.orelse
                if test == f"{residual} is not None"
                else []
            )
            if any(node is inner for statement in side for inner in ast.walk(statement)):
                return True
    return False
