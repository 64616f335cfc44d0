"""Complete a decoder's own capture by boundary N: the same forward, and the stream kept before the final norm.

The words are those of the decoders that do so themselves (sglang 0.5.23, models/nemotron_h.py and mimo_v2.py).
"""

from __future__ import annotations

import ast

from eagle_adapters.backends.sglang.own import LIST
from eagle_adapters.codegen.iteration import read_iteration
from eagle_adapters.codegen.loops import RESIDUAL_BATCH, Forward
from eagle_adapters.codegen.sources import MethodSource, dotted
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError

_ENDS = frozenset(f"{RESIDUAL_BATCH}.{name}" for name in ("final_norm", "fold", "take_output", "read_output"))


def with_last_boundary(method: MethodSource, forward: Forward) -> str:
    """The text of a forward with its own capture, which also keeps boundary N when that is asked for.

    Args:
        method: the forward as it is.
        forward: what was read from it without its capture: which variables carry stream and batch.

    Raises:
        AdaptationError: EA542, where the stream ends, or what collects the states, is not plain.
    """
    tree = method.parse()
    collectors = {
        node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ((dotted(node.value.func) or "") if isinstance(node.value, ast.Call) else ast.unparse(node.value))
        in ("AuxHiddenStateList", "AuxHiddenStatePacker", "[]")
        and "aux" in node.targets[0].id
    }
    ran = max(i for i, node in enumerate(tree.body) if any(map(_runs_layers, ast.walk(node))))
    ends = [i for i, node in enumerate(tree.body) if i > ran and any(map(_ends_stream, ast.walk(node)))]
    hidden, batch = forward.loop.hidden, forward.loop.batch
    if len(collectors) != 1 or not ends or batch is None:
        raise AdaptationError(
            Diagnostic(
                "EA542",
                f"the capture of {method.owner} cannot be completed by the last boundary",
                expected="one collector of states, and a final norm after the loop",
                found=f"collectors {sorted(collectors)}, {len(ends)} final norms",
                where=method.where(tree),
            )
        )
    kept = ast.parse(
        f"if len({forward.loop.iteration.layers}) in self.{LIST}:\n"
        f"    {hidden} = {RESIDUAL_BATCH}.complete_output({hidden}, {batch})\n"
        f"    {collectors.pop()}.append({RESIDUAL_BATCH}.snapshot({hidden}, {batch}))\n"
    ).body
    tree.body[ends[0] : ends[0]] = kept
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _runs_layers(node: ast.AST) -> bool:
    return isinstance(node, ast.For) and read_iteration(node) is not None


def _ends_stream(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) in _ENDS
