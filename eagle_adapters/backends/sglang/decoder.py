"""How a decoder of SGLang captures: by its own code, or by an instrumented forward."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from eagle_adapters.codegen.decoder import capturing_forward
from eagle_adapters.codegen.instrument import Instrumented
from eagle_adapters.codegen.sources import MethodSource, class_source
from eagle_adapters.codegen.style import SGLANG
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect import Anatomy

_OWN_SIGNS = ("layers_to_capture", "_is_layer_to_capture")


@dataclass(frozen=True, slots=True)
class Capture:
    """How one decoder captures.

    Attributes:
        cls: the decoder's class.
        method: its forward.
        instrumented: the capturing form of the forward, or None when the class captures by itself.
        reaches_last: whether boundary N can be captured.
        any_parallelism: whether states are known to be right with several tensor-parallel ranks.
    """

    cls: type
    method: MethodSource
    instrumented: Instrumented | None
    reaches_last: bool
    any_parallelism: bool


def plan_capture(cls: type, anatomy: Anatomy) -> Capture:
    """The capture of the decoder class `cls`.

    Raises:
        AdaptationError: EA42x, its forward cannot be instrumented.
    """
    source = class_source(cls)
    method = source.method("forward")
    if method is None:
        raise AdaptationError(Diagnostic("EA540", f"{source.name} has no forward in a source file", where=source.where))
    assert anatomy.layers is not None, "only a dynamic chain has no layers"
    layers = anatomy.layers.path.rpartition(".")[2]
    if captures_itself(method):
        return Capture(cls, method, None, _captures_after_loop(method), True)
    return Capture(cls, method, capturing_forward(source, SGLANG, layers=layers, anew=True), True, False)


def captures_itself(method: MethodSource) -> bool:
    """Whether the forward already keeps states at the places that `layers_to_capture` names."""
    tree = method.parse()
    names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    names |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return any(sign in names for sign in _OWN_SIGNS)


def _captures_after_loop(method: MethodSource) -> bool:
    """Whether something after the last layer still looks at the captured places: only then can boundary N be had."""
    tree = method.parse()
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For)]
    last = max((loop.end_lineno or 0 for loop in loops), default=0)
    return any(
        isinstance(node, ast.Attribute) and node.attr == "layers_to_capture" and node.lineno > last
        for node in ast.walk(tree)
    )
