"""Write the capturing form of a decoder's forward: the same statements, and the stream kept at the asked boundaries.

`instrument(forward, residual, style)` gives an `Instrumented` with one source text. Boundary `first` is taken right
before the loop, boundary `index + 1` at the end of each iteration, so additions after the layer call are part of it.
Early results that the loop does not compute raise when states are asked for, instead of leaving them out.
"""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass

from eagle_adapters.codegen.compile import source_digest
from eagle_adapters.codegen.loops import RESIDUAL_BATCH, Forward, LayerLoop, ReturnKind
from eagle_adapters.codegen.native import captures
from eagle_adapters.codegen.sources import dotted
from eagle_adapters.codegen.streams import Residual, StreamForm
from eagle_adapters.codegen.style import Style
from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.errors import AdaptationError

_SHARDING = ("sequence_parallel_chunk", "sp_entry_scatter")


@dataclass(frozen=True, slots=True)
class Instrumented:
    """A capturing method.

    Attributes:
        name: the method's name.
        source: its whole text, at column 0.
        original_sha256: digest of the text it was derived from.
        residual: how the stream is read, with the evidence.
        relay: whether it packs and collects states across pipeline ranks; the class must then say
            `supports_aux_hidden_states_over_pp = True`, and must say False otherwise.
        pipeline_safe: whether the loop runs only the rank's own layers; if not, refuse more than one pipeline rank.
        notes: what the reader should know, severity `note` or `warning`.
    """

    name: str
    source: str
    original_sha256: str
    residual: Residual
    relay: bool
    pipeline_safe: bool
    notes: tuple[Diagnostic, ...] = ()


def instrument(forward: Forward, residual: Residual, style: Style) -> Instrumented:
    """The capturing form of `forward`.

    Raises:
        AdaptationError: EA425 the stream cannot be read as one tensor, EA426 the method captures already, EA427 a
            return cannot carry states, EA428 the stream is sharded inside the loop.
    """
    method = forward.method
    _check(forward, residual)
    # The copy keeps positions, so nodes found in the original are found again by identity of their deep-copied twins.
    memo: dict[int, object] = {}
    tree = copy.deepcopy(forward.tree, memo)
    assert isinstance(tree, ast.FunctionDef)
    writer = _Writer(forward, residual, style, _free_name(forward, style.states))
    for loop in forward.loops:
        twin = memo[id(loop.node)]
        assert isinstance(twin, ast.For)
        boundary = f"{writer.number(loop, twin)} + 1"
        body = _before_continues(twin.body, functools.partial(writer.capture, loop, boundary))
        twin.body = [*body, *writer.capture(loop, boundary)]
    replaced: dict[int, list[ast.stmt]] = {}

    def put_before(node: ast.stmt, statements: list[ast.stmt]) -> None:
        replaced[id(node)] = [*statements, *replaced.get(id(node), [node])]

    def twin_of(node: ast.stmt) -> ast.stmt:
        copied = memo[id(node)]
        assert isinstance(copied, ast.stmt)
        return copied

    for loop in forward.loops:
        put_before(twin_of(loop.node), writer.entry(loop))
    for result in forward.returns:
        copied = twin_of(result.node)
        assert isinstance(copied, ast.Return)
        replaced[id(copied)] = writer.returned(result.kind, copied)
    for detour in forward.detours:
        put_before(twin_of(detour), writer.guard("layers that run outside the loop"))
    first = twin_of(forward.loop.node)
    put_before(next(s for s in tree.body if any(node is first for node in ast.walk(s))), writer.opening())
    _replace(tree, replaced)
    source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return Instrumented(
        method.name,
        source,
        source_digest(method.text),
        residual,
        writer.relay,
        all(loop.iteration.bounded for loop in forward.loops),
        tuple(_notes(forward)),
    )


class _Writer:
    """The statements to add, for one method."""

    def __init__(self, forward: Forward, residual: Residual, style: Style, states: str) -> None:
        self.forward, self.residual, self.style, self.states = forward, residual, style, states
        self.counter = _free_name(forward, "layer_number")
        self.relay = style.relay and _relays(forward)

    def number(self, loop: LayerLoop, node: ast.For) -> str:
        """The absolute index of the current layer; wraps the loop in `enumerate` when it has no usable one."""
        if loop.iteration.index is not None:
            return loop.iteration.index
        start = "" if loop.iteration.first == "0" else f", start={loop.iteration.first}"
        node.target = ast.Tuple([ast.Name(self.counter, ast.Store()), node.target], ast.Store())
        node.iter = _expression(f"enumerate({ast.unparse(node.iter)}{start})")
        return self.counter

    def opening(self) -> list[ast.stmt]:
        """The empty list, and what earlier ranks sent."""
        lines = [f"{self.states} = []"]
        if self.relay:
            lines.append("remote_aux_hidden_states = self.collect_remote_aux_hidden_states(intermediate_tensors)")
        return _statements("\n".join(lines))

    def entry(self, loop: LayerLoop) -> list[ast.stmt]:
        """The capture of the state that enters the rank's first layer."""
        captured = self.capture(loop, loop.iteration.first)
        if not self.relay:
            return captured
        # The rank before has sent this boundary as the output of its last layer.
        gate = _statements("if get_pp_group().is_first_rank:\n    pass")[0]
        assert isinstance(gate, ast.If)
        gate.body = captured
        return [gate]

    def capture(self, loop: LayerLoop, boundary: str) -> list[ast.stmt]:
        """Keep the stream when `boundary` is asked for."""
        hidden, residual = loop.hidden, loop.residual
        head = f"if {boundary} in self.{self.style.attribute}:\n    "
        if self.residual.form is StreamForm.BATCHED:
            return _statements(
                f"{head}{hidden} = {RESIDUAL_BATCH}.complete_output({hidden}, {loop.batch})\n"
                f"    {self.states}.append({RESIDUAL_BATCH}.snapshot({hidden}, {loop.batch}))"
            )
        # A sum is a new tensor; a lone tensor may be overwritten in place by the next layer's fused add and norm.
        value = f"{hidden}.clone()"
        if self.residual.form is StreamForm.SUM:
            value = f"{value} if {residual} is None else {hidden} + {residual}"
        return _statements(f"{head}{self.states}.append({value})")

    def guard(self, what: str) -> list[ast.stmt]:
        """Stop instead of leaving states out."""
        message = f"EAGLE-3 states cannot be captured: {self.forward.method.name} took a path with {what}"
        return _statements(f"if self.{self.style.attribute}:\n    raise RuntimeError({message!r})")

    def returned(self, kind: ReturnKind, node: ast.Return) -> list[ast.stmt]:
        """A return statement that also hands the states out."""
        if kind is ReturnKind.EARLY:
            return [*self.guard("a result that the layer loop does not compute"), node]
        if kind is ReturnKind.PIPELINE:
            if self.relay:
                assert isinstance(node.value, ast.Call)
                _pack(node.value, f"self.pack_local_aux_hidden_states({self.states})")
            return [node]
        out: list[ast.stmt] = []
        value = node.value
        assert value is not None
        if not isinstance(value, ast.Name):
            name = _free_name(self.forward, "output")
            out.append(ast.Assign([ast.Name(name, ast.Store())], value))
            value = ast.Name(name, ast.Load())
        states = self.states
        if self.relay:
            out += _statements(f"{states} = remote_aux_hidden_states + {states}")
        plain = ast.unparse(value)
        return [*out, *_statements(f"if len({states}) > 0:\n    return ({plain}, {states})\nreturn {plain}")]


def _check(forward: Forward, residual: Residual) -> None:
    method, tree = forward.method, forward.tree
    refusal = residual.refusal()
    if refusal is not None:
        raise AdaptationError(refusal)
    sign = captures(tree)
    if sign is not None:
        raise AdaptationError(
            Diagnostic(
                "EA426",
                f"{method.owner}.{method.name} captures states itself",
                expected="a forward without capture",
                found=sign,
                where=method.where(tree),
                next_step="keep its own capture, or ask for a new one in its place",
            )
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").split(".")[-1] in _SHARDING:
            raise AdaptationError(
                Diagnostic(
                    "EA428",
                    "the stream is sharded over ranks inside the loop",
                    expected="whole states",
                    found=ast.unparse(node),
                    where=method.where(node),
                )
            )
    tuples = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for result in forward.returns:
        value = result.node.value
        if result.kind is not ReturnKind.FINAL:
            continue
        if (
            value is None
            or isinstance(value, ast.Tuple | ast.IfExp)
            or (isinstance(value, ast.Name) and value.id in tuples)
        ):
            raise AdaptationError(
                Diagnostic(
                    "EA427",
                    f"{method.owner}.{method.name} returns more than the hidden state",
                    expected="return hidden",
                    found=ast.unparse(result.node),
                    where=result.where,
                )
            )


def _notes(forward: Forward) -> list[Diagnostic]:
    """Places where the stream changes after one layer and before the next: the boundary is the state before that."""
    places = [place for loop in forward.loops for place in loop.changed_before]
    places += [
        forward.method.where(call)
        for loop in forward.loops
        for call in loop.calls
        if any(keyword.arg == "post_residual_addition" for keyword in call.keywords)
    ]
    return [
        Diagnostic(
            "EA429",
            "the stream is changed between two layers",
            Severity.NOTE,
            where=place,
            consequence="the boundary is taken before this change",
        )
        for place in places
    ]


def _relays(forward: Forward) -> bool:
    arguments = {a.arg for a in [*forward.tree.args.args, *forward.tree.args.kwonlyargs]}
    calls = {dotted(n.func) for n in ast.walk(forward.tree) if isinstance(n, ast.Call)}
    pipeline = [r.node.value for r in forward.returns if r.kind is ReturnKind.PIPELINE]
    return (
        "intermediate_tensors" in arguments
        and "get_pp_group" in calls
        and bool(pipeline)
        and all(loop.iteration.bounded for loop in forward.loops)
        and all(
            isinstance(v, ast.Call) and dotted(v.func) == "IntermediateTensors" and len(v.args) == 1 for v in pipeline
        )
    )


def _pack(call: ast.Call, packed: str) -> None:
    tensors = call.args[0]
    if isinstance(tensors, ast.Dict):
        tensors.keys.append(None)
        tensors.values.append(_expression(packed))
    else:
        call.args[0] = _expression(f"{{**{ast.unparse(tensors)}, **{packed}}}")


def _before_continues(body: list[ast.stmt], captured: Callable[[], list[ast.stmt]]) -> list[ast.stmt]:
    """The body with a capture before each `continue` of its own loop."""
    out: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.Continue):
            out += captured()
        elif not isinstance(statement, ast.For | ast.While | ast.FunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                if getattr(statement, name, None):
                    setattr(statement, name, _before_continues(getattr(statement, name), captured))
        out.append(statement)
    return out


def _replace(tree: ast.FunctionDef, replaced: dict[int, list[ast.stmt]]) -> None:
    """Put the new statements in the place of the old ones, in every block."""

    def block(body: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in body:
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, None)
                if inner and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    setattr(statement, name, block(inner))
            for handler in getattr(statement, "handlers", []):
                handler.body = block(handler.body)
            out += replaced.get(id(statement), [statement])
        return out

    tree.body = block(tree.body)


def _free_name(forward: Forward, wanted: str) -> str:
    taken = {n.id for n in ast.walk(forward.tree) if isinstance(n, ast.Name)}
    taken |= {n.arg for n in ast.walk(forward.tree) if isinstance(n, ast.arg)}
    return next(
        name for name in (wanted, f"eagle_{wanted}", f"eagle3_{wanted}", f"eagle3_{wanted}_") if name not in taken
    )


def _statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
