"""Toy decoders as real modules in files, instrumented classes of them, and their states by an independent walk."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

import torch

from eagle_adapters.codegen.compile import compile_method
from eagle_adapters.codegen.decoder import capturing_forward
from eagle_adapters.codegen.instrument import Instrumented
from eagle_adapters.codegen.style import Style
from eagle_adapters.testing.forwards import Shape

_NUMBERS = itertools.count()


def load(source: str, folder: Path) -> ModuleType:
    """Import a module from text, from a file of its own."""
    name = f"toy_decoder_{next(_NUMBERS)}"
    file = folder / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build(module: ModuleType, **sizes: int) -> torch.nn.Module:
    torch.manual_seed(7)
    return module.Decoder(**sizes).requires_grad_(False).eval()


def capturing_class(module: ModuleType, style: Style, **options: object) -> tuple[type, Instrumented]:
    """A subclass of the toy with the generated forward, and what was generated."""
    instrumented = capturing_forward(module.Decoder, style, **options)  # type: ignore[arg-type]
    cls = type("Decoder", (module.Decoder,), {"__module__": module.__name__})
    cls.forward = compile_method(instrumented.source, "forward", module.Decoder, vars(module))
    return cls, instrumented


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([1, 5, 2, 9, 3]), torch.linspace(0, 0.3, 5).unsqueeze(-1)


def walk(decoder: torch.nn.Module, shape: Shape) -> list[torch.Tensor]:
    """The stream at every boundary: each layer called on its own with copies of its inputs."""
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
