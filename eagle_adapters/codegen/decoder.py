"""A decoder class in, its capturing forward out: loop, residual form and instrumentation put together."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from eagle_adapters.codegen.classes import attribute_classes
from eagle_adapters.codegen.instrument import Instrumented, instrument
from eagle_adapters.codegen.loops import read_forward
from eagle_adapters.codegen.native import captures, strip
from eagle_adapters.codegen.residual import read_residual
from eagle_adapters.codegen.sources import ClassSource, class_source, dotted
from eagle_adapters.codegen.style import Style
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError


def capturing_forward(
    decoder: type | ClassSource,
    style: Style,
    *,
    name: str = "forward",
    layers: str | None = None,
    layer_classes: Sequence[type | ClassSource] = (),
    anew: bool = False,
) -> Instrumented:
    """The capturing form of a decoder's forward in the wording of one engine.

    Args:
        decoder: the decoder class in use; an inherited forward is read from the base that defines it.
        style: `VLLM` or `SGLANG`.
        name: the method that runs the layers.
        layers: name of the list of layers, when the class has more than one.
        layer_classes: classes of the layers, when known from live modules; else read from the constructor.
        anew: whether to take a capture of the engine's own out first, instead of refusing (EA426).

    Raises:
        AdaptationError: EA420 to EA428, the reason with `file:line`; nothing is changed.
    """
    cls = decoder if isinstance(decoder, ClassSource) else class_source(decoder)
    method = cls.method(name)
    if method is None:
        raise AdaptationError(
            Diagnostic("EA420", f"{cls.name} has no readable method {name}", expected=f"def {name}", where=cls.where)
        )
    again = _run_again(cls)
    if again is not None:
        raise AdaptationError(again)
    if anew and captures(method.parse()) is not None:
        method = strip(method)
    forward = read_forward(method, layers)
    known = tuple(c if isinstance(c, ClassSource) else class_source(c) for c in layer_classes)
    return instrument(forward, read_residual(forward, cls, known), style)


def _run_again(decoder: ClassSource) -> Diagnostic | None:
    """Why the decoder runs more than once per forward of a class beside it that owns it, or None."""
    for node in decoder.module.tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        owner = ClassSource(decoder.module, node, node.name)
        stored = {
            child.attr
            for method in node.body
            if isinstance(method, ast.FunctionDef)
            for child in ast.walk(method)
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and dotted(child.value) == "self"
        }
        for call in _called_in_loops(node):
            name = (dotted(call.func) or "").removeprefix("self.")
            if name in stored and any(cls.name == decoder.name for cls in attribute_classes(owner, name)):
                return Diagnostic(
                    "EA424",
                    f"{owner.name} runs {decoder.name} in a loop",
                    expected="each layer once per forward",
                    found=ast.unparse(call.func),
                    where=f"{decoder.module.file}:{call.lineno}",
                )
    return None


def _called_in_loops(tree: ast.AST) -> Iterator[ast.Call]:
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For | ast.While):
            yield from (node for node in ast.walk(loop) if isinstance(node, ast.Call))
