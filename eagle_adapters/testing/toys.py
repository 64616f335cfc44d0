"""Toy decoders as real modules in files, classes of them with generated forwards, and their states by a second way.

`walk` calls each layer on its own with copies of its inputs, so it shares nothing with the generated code.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from eagle_adapters.codegen.compile import compile_method
from eagle_adapters.codegen.decoder import capturing_forward
from eagle_adapters.codegen.instrument import Instrumented
from eagle_adapters.codegen.style import Style
from eagle_adapters.testing.forwards import Shape

if TYPE_CHECKING:
    import torch

_NUMBERS = itertools.count()


def load(source: str, folder: Path) -> ModuleType:
    """The module that `source` defines, imported from a file of its own in `folder`."""
    name = f"toy_decoder_{next(_NUMBERS)}"
    file = folder / f"{name}.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build(module: ModuleType) -> Any:
    """A toy decoder of 4 layers, width 8, with the same weights every time."""
    import torch

    torch.manual_seed(7)
    return module.Decoder().requires_grad_(False).eval()


def capturing_class(module: ModuleType, style: Style, *, anew: bool = False) -> tuple[type, Instrumented]:
    """A subclass of the toy with the generated forward, and what was generated."""
    instrumented = capturing_forward(module.Decoder, style, anew=anew)
    forward = compile_method(instrumented.source, "forward", module.Decoder, vars(module))
    return type("Decoder", (module.Decoder,), {"__module__": module.__name__, "forward": forward}), instrumented


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [5] and positions [5, 1] for a toy decoder."""
    import torch

    return torch.tensor([1, 5, 2, 9, 3]), torch.linspace(0, 0.3, 5).unsqueeze(-1)


def walk(decoder: Any, shape: Shape) -> list[torch.Tensor]:
    """The stream at every boundary."""
    ids, positions = inputs()
    hidden, residual = decoder.embed_tokens(ids) * decoder.scale, None
    states = [hidden.clone()]
    for number, layer in enumerate(decoder.layers):
        if not (shape.around == "continue" and number == 1):
            given = [hidden.clone()] + ([None if residual is None else residual.clone()] if shape.pair else [])
            result = layer(positions, *given)
            hidden, residual = result if shape.pair else (result, None)
            if shape.around == "injection":
                hidden = hidden + decoder.injected
        states.append((hidden + residual if shape.form == "sum" and residual is not None else hidden).clone())
    return states
