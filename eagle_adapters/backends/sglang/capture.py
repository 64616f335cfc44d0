"""What a generated `set_eagle3_layers_to_capture` does: settle the boundaries, and switch the capture on.

Nothing is changed until everything has been checked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from eagle_adapters.backends.sglang.decoder import LastBoundary
from eagle_adapters.backends.sglang.own import Place
from eagle_adapters.backends.sglang.request import read_boundaries, request_for
from eagle_adapters.boundaries import Reading
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError, BoundaryError

logger = logging.getLogger("eagle_adapters.sglang")


def set_boundaries(
    target: Any,
    layer_ids: Sequence[int] | None,
    *,
    decoder: str,
    layers: str,
    holder: str,
    own: str | None,
    last: str,
    several_ranks: bool,
) -> Reading:
    """Make `target` capture what the draft asks for.

    Args:
        target: the top-level model.
        layer_ids: as the engine passes them; the draft's own statement, where it is known, is stronger.
        decoder: path of the decoder from the target.
        layers: path of the list of layers from the decoder.
        holder: path of the module that owns the logits processor, from the target.
        own: where the engine's own capture looks (`Place`), or None when the capture is a generated one.
        last: who captures boundary N (`LastBoundary`).
        several_ranks: whether states are whole when several tensor-parallel ranks share a layer's sum.

    Raises:
        BoundaryError: EA0xx, EA541, EA542, EA544, the boundaries cannot be settled or reached.
        AdaptationError: EA543, a parallel mode in which the states are not proven.
    """
    module, owner = resolve(target, decoder), resolve(target, holder)
    blocks = resolve(module, layers)
    request = request_for(layer_ids)
    reading = read_boundaries(request, len(blocks))
    boundaries = [int(b) for b in reading.require()]
    wants_last = len(blocks) in boundaries
    if wants_last and last == LastBoundary.NONE:
        raise BoundaryError(
            Diagnostic(
                "EA542",
                f"{type(module).__qualname__} cannot capture boundary {len(blocks)}",
                expected=f"boundaries 0..{len(blocks) - 1}: the class captures the inputs of its layers, and its "
                "stream after the last one cannot be read as one tensor",
                found=str(boundaries),
                where=request.where,
                next_step="use a draft with other boundaries",
            )
        )
    if own is None:
        proven: tuple[str, ...] = ("tp_size",) if several_ranks else ()
    elif wants_last and last != LastBoundary.OWN:
        proven = ("tp_size",)  # the added lines finish a postponed sum, and keep the rows that this rank has
    else:
        proven = ("tp_size", "attn_dp_size", "attn_cp_size")
    _check_parallelism(type(target).__qualname__, proven)
    module.layers_to_capture = boundaries
    if own == Place.MARK:  # not for the list: one class looks at both, and would keep every state twice
        for number, block in enumerate(blocks):
            block._is_layer_to_capture = number in boundaries
    for model in (target, owner):
        model.capture_aux_hidden_states = True
    # The engine's own check at the first forward: it fails unless the model captured as many states as were asked for.
    owner.logits_processor.expected_aux_hidden_states = len(boundaries)
    logger.info("EAGLE-3 in %s: %s; ids from %s", type(target).__qualname__, reading, request.where)
    return reading


def resolve(model: Any, path: str) -> Any:
    """The object at a dotted attribute path; the empty path is the model itself."""
    for part in path.split(".") if path else ():
        model = getattr(model, part)
    return model


def _check_parallelism(name: str, proven: Sequence[str]) -> None:
    refused = {mode: size for mode, size in _parallel_sizes().items() if size > 1 and mode not in proven}
    if refused:
        modes = ", ".join(f"{mode} {size}" for mode, size in refused.items())
        raise AdaptationError(
            Diagnostic(
                "EA543",
                f"the captured states of {name} are not proven under {modes}",
                expected="1",
                found=modes,
                consequence="states could be missing, partial sums, or one rank's share",
                next_step="serve EAGLE-3 without it",
            )
        )


def _parallel_sizes() -> dict[str, int]:
    """How many ranks each kind of parallelism has; empty outside an engine."""
    try:
        from sglang.srt.runtime_context import get_parallel

        parallel = get_parallel()
        return {
            name: int(getattr(parallel, name, 1) or 1)
            for name in ("tp_size", "pp_size", "attn_dp_size", "attn_cp_size")
        }
    except (ImportError, RuntimeError, AssertionError, ValueError):
        return {}
