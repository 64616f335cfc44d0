"""How a decoder of SGLang captures: by its own code, by that code completed, or by an instrumented forward."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eagle_adapters.backends.sglang.last import with_last_boundary
from eagle_adapters.backends.sglang.own import Place, captures_itself, own_capture
from eagle_adapters.backends.sglang.passthrough import running_forward
from eagle_adapters.codegen.compile import source_digest
from eagle_adapters.codegen.decoder import capturing_forward
from eagle_adapters.codegen.loops import read_forward
from eagle_adapters.codegen.native import strip
from eagle_adapters.codegen.residual import read_residual
from eagle_adapters.codegen.sources import ClassSource, MethodSource, class_source
from eagle_adapters.codegen.style import SGLANG
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect import Anatomy


class LastBoundary(StrEnum):
    """Who captures boundary N."""

    OWN = "own"
    """The class's own code."""
    ADDED = "added"
    """A few lines added to it."""
    GENERATED = "generated"
    """The instrumented forward, as every other boundary."""
    NONE = "none"
    """Nobody."""


@dataclass(frozen=True, slots=True)
class Capture:
    """How one decoder captures.

    Attributes:
        cls: the decoder's class.
        method: its forward.
        own: where the class's own capture looks, or None when the forward is instrumented.
        last: who captures boundary N.
        source: the new text of the forward, or None when it stays.
        original_sha256: digest of the text that `source` replaces.
        why: what `source` does, for the plan.
        several_ranks: whether states are whole when several tensor-parallel ranks share a layer's sum.
    """

    cls: type
    method: MethodSource
    own: Place | None
    last: LastBoundary
    source: str | None
    original_sha256: str
    why: str
    several_ranks: bool = True


def plan_capture(cls: type, anatomy: Anatomy) -> Capture:
    """The capture of the decoder class `cls`.

    Raises:
        AdaptationError: EA42x, its forward cannot be instrumented.
    """
    source = class_source(cls)
    method = running_forward(source)
    if method is None:
        raise AdaptationError(Diagnostic("EA540", f"{source.name} has no forward in a source file", where=source.where))
    assert anatomy.layers is not None, "only a dynamic chain has no layers"
    layers = anatomy.layers.path.rpartition(".")[2]
    own = own_capture(method)
    digest = source_digest(method.text)
    if own is None:
        made = capturing_forward(source, SGLANG, layers=layers, anew=True)
        does = "captures something else than boundaries" if captures_itself(method) else "does not capture"
        why = f"{cls.__qualname__} {does}; {made.residual.evidence[0].says}"
        whole = made.residual.tensor_parallel_safe
        return Capture(cls, method, None, LastBoundary.GENERATED, made.source, digest, why, several_ranks=whole)
    if own.reaches_last:
        return Capture(cls, method, own.place, LastBoundary.OWN, None, digest, "")
    try:
        text = _completed(source, method, layers)
    except AdaptationError:  # the setter refuses boundary N, and only that
        return Capture(cls, method, own.place, LastBoundary.NONE, None, digest, "")
    why = f"{cls.__qualname__} captures the inputs of its layers, so never boundary N"
    return Capture(cls, method, own.place, LastBoundary.ADDED, text, digest, why)


def _completed(source: ClassSource, method: MethodSource, layers: str) -> str:
    """The forward with its own capture and boundary N, where the engine's snapshot is shown to be the stream."""
    forward = read_forward(strip(method), layers)
    refusal = read_residual(forward, source).refusal()
    if refusal is not None:
        raise AdaptationError(refusal)
    return with_last_boundary(method, forward)
