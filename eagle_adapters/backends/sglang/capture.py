"""What a generated `set_eagle3_layers_to_capture` does: settle the boundaries, and switch the capture on.

Nothing is changed until everything has been checked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

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
    own_capture: bool,
    reaches_last: bool,
    any_parallelism: bool,
) -> Reading:
    """Make `target` capture what the draft asks for.

    Args:
        target: the top-level model.
        layer_ids: as the engine passes them; the draft's own statement, where it is known, is stronger.
        decoder: path of the decoder from the target.
        layers: path of the list of layers from the decoder.
        holder: path of the module that owns the logits processor, from the target.
        own_capture: whether the decoder's capture is the engine's own code.
        reaches_last: whether boundary N can be captured.
        any_parallelism: whether states are right with several tensor-parallel ranks.

    Raises:
        BoundaryError: EA0xx, EA541, EA542, EA544, the boundaries cannot be settled or reached.
        AdaptationError: EA543, a parallel mode in which the states are not proven.
    """
    module, owner = resolve(target, decoder), resolve(target, holder)
    blocks = resolve(module, layers)
    request = request_for(layer_ids)
    reading = read_boundaries(request, len(blocks))
    boundaries = [int(b) for b in reading.require()]
    if not reaches_last and len(blocks) in boundaries:
        raise BoundaryError(
            Diagnostic(
                "EA542",
                f"{type(module).__qualname__} cannot capture boundary {len(blocks)}",
                expected=f"boundaries 0..{len(blocks) - 1}: this class captures a state as the next layer's input",
                found=str(boundaries),
                where=request.where,
                next_step="use a draft with other boundaries",
            )
        )
    _check_parallelism(type(target).__qualname__, own_capture=own_capture, any_parallelism=any_parallelism)
    module.layers_to_capture = boundaries
    for number, block in enumerate(blocks):
        # Some classes of SGLang look at the layers instead of the list (sglang 0.5.23, models/qwen2_moe.py).
        if own_capture:
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


def _check_parallelism(name: str, *, own_capture: bool, any_parallelism: bool) -> None:
    parallel = _parallel_sizes()
    refused = {mode: size for mode, size in parallel.items() if size > 1 and mode != "tp_size"}
    if own_capture:
        refused = {mode: size for mode, size in refused.items() if mode == "pp_size"}
    if parallel.get("tp_size", 1) > 1 and not any_parallelism:
        refused["tp_size"] = parallel["tp_size"]
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
    except (ImportError, RuntimeError, AssertionError):
        return {}
