"""Decide from code what the true residual stream is: a sum of two tensors, one of them alone, or something else.

`read_residual(forward, decoder)` follows the stream through the decoder layer's and the norms' own source (`ledger`): a pair is a
sum when `hidden + residual` still contains both inputs, and hidden is complete when it contains its own input and ignores the
residual. What the decoder does after the loop must agree. Nothing is assumed: what cannot be shown is `UNKNOWN`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from eagle_adapters.codegen.classes import attribute_classes
from eagle_adapters.codegen.ledger import NONE, Carry, Ledger, TooManyPaths, added, source_of
from eagle_adapters.codegen.loops import RESIDUAL_BATCH, Forward, LayerLoop
from eagle_adapters.codegen.sources import ClassSource, dotted
from eagle_adapters.diagnostics import Diagnostic


class StreamForm(StrEnum):
    """Where the true residual stream is after a layer."""

    SUM = "sum"
    """`hidden + residual`."""
    COMPLETE = "complete"
    """`hidden`; the second tensor of the pair is not part of it."""
    SINGLE = "single"
    """`hidden`, the only tensor carried."""
    BATCHED = "batched"
    """Kept by the engine in the batch object and read through its own accessor (sglang 0.5.23 `residual_batch`)."""
    STREAMS = "streams"
    """Several parallel streams (AltUp, hyper-connections): no single tensor is the stream."""
    UNKNOWN = "unknown"
    """Not shown by the code."""


READABLE = frozenset({StreamForm.SUM, StreamForm.COMPLETE, StreamForm.SINGLE, StreamForm.BATCHED})


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing the code says, and where."""

    where: str
    says: str


@dataclass(frozen=True, slots=True)
class Residual:
    """How the residual stream is read.

    Attributes:
        form: where the stream is.
        evidence: what in the code shows it, at least one entry.
        tensor_parallel_safe: False when a layer may hand on a partial sum that a later layer reduces; the state is then right only
            with one tensor-parallel rank.
    """

    form: StreamForm
    evidence: tuple[Evidence, ...]
    tensor_parallel_safe: bool = True

    def refusal(self) -> Diagnostic | None:
        """Why the stream cannot be read as one tensor, or None when it can."""
        if self.form in READABLE:
            return None
        reason = (
            "the stream is several tensors"
            if self.form is StreamForm.STREAMS
            else "the residual form cannot be decided"
        )
        return Diagnostic(
            "EA425",
            reason,
            expected="one tensor, or a pair that is shown to be a sum or not",
            found="; ".join(e.says for e in self.evidence),
            where=self.evidence[0].where,
        )


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
    if loop.batch is not None:
        return _batched(forward, loop)
    classes = tuple(layers) or attribute_classes(decoder, loop.iteration.layers.removeprefix("self."))
    classes = tuple(c for c in classes if c.definition("forward") is not None)
    streams = _several_streams(forward, classes)
    if streams is not None:
        return Residual(StreamForm.STREAMS, (streams,))
    deferred = _deferred(classes)
    if loop.residual is None:
        evidence = Evidence(where, f"the loop carries {loop.hidden} alone")
        return Residual(StreamForm.SINGLE, (evidence, *deferred), not deferred)
    if not classes:
        return Residual(StreamForm.UNKNOWN, (Evidence(where, f"the class of {loop.iteration.layers} cannot be read"),))
    shown: list[tuple[StreamForm, Evidence]] = [_layer_form(loop, cls) for cls in classes]
    after = _after_loop(forward, decoder)
    if after is not None:
        shown.append(after)
    forms = {form for form, _ in shown}
    evidence_all = tuple(e for _, e in shown)
    if len(forms) != 1:
        return Residual(StreamForm.UNKNOWN, evidence_all)
    return Residual(forms.pop(), (*evidence_all, *deferred), not deferred)


def _batched(forward: Forward, loop: LayerLoop) -> Residual:
    for node in ast.walk(forward.tree):
        name = dotted(node.func) if isinstance(node, ast.Call) else None
        if name in (f"{RESIDUAL_BATCH}.read_output", f"{RESIDUAL_BATCH}.set_written"):
            return Residual(
                StreamForm.STREAMS,
                (Evidence(forward.method.where(node), f"{name}: the update of the stream is not a plain addition"),),
            )
    return Residual(
        StreamForm.BATCHED, (Evidence(loop.where, f"{RESIDUAL_BATCH}.start({loop.batch}) keeps the residual"),)
    )


def _several_streams(forward: Forward, classes: Sequence[ClassSource]) -> Evidence | None:
    places: list[tuple[ast.AST, str]] = [(forward.tree, str(forward.method.file))]
    places += [(cls.node, str(cls.module.file)) for cls in classes]
    for tree, file in places:
        for node in ast.walk(tree):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if any(sign in name.lower() for sign in _STREAM_SIGNS):
                line = forward.method.where(node) if tree is forward.tree else f"{file}:{getattr(node, 'lineno', 0)}"
                return Evidence(line, f"`{name}`: several parallel residual streams")
    return None


def _deferred(classes: Sequence[ClassSource]) -> tuple[Evidence, ...]:
    for cls in classes:
        for node in ast.walk(cls.node):
            name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if name in _DEFERRED_SIGNS:
                says = f"`{name}`: a layer may hand on a partial sum under tensor parallelism"
                return (Evidence(f"{cls.module.file}:{getattr(node, 'lineno', 0)}", says),)
    return ()


def _layer_form(loop: LayerLoop, cls: ClassSource) -> tuple[StreamForm, Evidence]:
    found = cls.definition("forward")
    assert found is not None
    owner, function = found
    where = f"{owner.module.file}:{function.lineno}"
    call = loop.calls[0]
    hidden, residual = _parameter(call, function, loop.hidden), _parameter(call, function, loop.residual or "")
    place = _positions(loop, call)
    if hidden is None or residual is None or place is None:
        return StreamForm.UNKNOWN, Evidence(where, "the layer call cannot be matched with the layer's parameters")
    ledger = Ledger(cls)
    try:
        with_residual = ledger.run("forward", {hidden: source_of("hidden"), residual: source_of("residual")})
        without = ledger.run("forward", {hidden: source_of("hidden"), residual: NONE})
    except TooManyPaths:
        return StreamForm.UNKNOWN, Evidence(where, "the layer has too many paths to follow")
    pairs = [_pair(result, place) for result in with_residual]
    first = [_pair(result, place) for result in without]
    if not pairs or None in pairs or None in first:
        return StreamForm.UNKNOWN, Evidence(where, f"{cls.node.name}.forward does not return the pair on every path")
    names = frozenset({"hidden", "residual"})
    known = [pair for pair in pairs if pair is not None]
    known_first = [pair for pair in first if pair is not None]
    if all(added(h, r).addends == names for h, r in known) and all(
        "hidden" in added(h, r).addends for h, r in known_first
    ):
        detail = "; ".join(f"{name} at {line}" for name, line in sorted(ledger.notes.items()))
        return StreamForm.SUM, Evidence(
            where, f"{cls.node.name} keeps both inputs in hidden + residual" + (f" ({detail})" if detail else "")
        )
    if all("hidden" in h.addends and "residual" not in h.reads for h, _ in known):
        return StreamForm.COMPLETE, Evidence(
            where, f"{cls.node.name} adds into hidden and ignores the residual it is given"
        )
    return StreamForm.UNKNOWN, Evidence(
        where, f"{cls.node.name}: neither hidden + residual nor hidden alone keeps the stream"
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


def _after_loop(forward: Forward, decoder: ClassSource) -> tuple[StreamForm, Evidence] | None:
    """What the code after the loop takes for the stream."""
    loop = forward.loop
    end = loop.node.end_lineno or loop.node.lineno
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
                return StreamForm.SUM, Evidence(where, f"after the loop: {ast.unparse(node)}")
            continue
        given = [ast.unparse(a) for a in [*node.args, *(k.value for k in node.keywords)]]
        name = dotted(node.func) or ""
        if loop.hidden not in given or not name.startswith("self."):
            continue
        if loop.residual not in given:
            if _inside_none_test(forward, node, loop.residual or ""):
                continue
            return StreamForm.COMPLETE, Evidence(where, f"after the loop: {ast.unparse(node)} takes hidden alone")
        for norm in attribute_classes(decoder, name.removeprefix("self.")):
            if norm.definition("forward") is None and norm.definition("forward_native") is None:
                continue
            adds = _norm_adds(norm)
            if adds is not None:
                form = StreamForm.SUM if adds else StreamForm.COMPLETE
                does = "adds" if adds else "does not add"
                return form, Evidence(
                    where, f"after the loop: {ast.unparse(node)}; {norm.node.name} {does} the residual ({norm.where})"
                )
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
    except TooManyPaths:
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
