"""Toy decoders as source text, one per combination of loop, residual form and surroundings.

A `Shape` names the combination, `decoder_source(shape)` is a complete module with class `Decoder`, and `shapes()` is
a Hypothesis strategy over all of them. The norm writes in place like the engines' fused kernels, so a capture that
aliases is caught.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

LOOPS: dict[str, tuple[str, str]] = {
    "plain": ("for layer in self.layers:", ""),
    "enumerate": ("for i, layer in enumerate(self.layers):", ""),
    "zip": ("for layer, extra in zip(self.layers, self.extras):", ""),
    "range_len": ("for i in range(len(self.layers)):", "layer = self.layers[i]"),
    "slice": ("for layer in self.layers[self.start_layer:self.end_layer]:", ""),
    "enumerate_slice": ("for i, layer in enumerate(self.layers[self.start_layer:self.end_layer]):", ""),
    "rebound": (
        "for i, layer in enumerate(self.layers[self.start_layer:self.end_layer]):",
        "i = i + self.start_layer",
    ),
    "islice": ("for layer in islice(self.layers, self.start_layer, self.end_layer):", ""),
    "enumerate_islice": ("for i, layer in enumerate(islice(self.layers, self.start_layer, self.end_layer)):", ""),
    "enumerate_islice_start": (
        "for i, layer in enumerate(islice(self.layers, self.start_layer, self.end_layer), start=self.start_layer):",
        "",
    ),
    "islice_enumerate": ("for i, layer in islice(enumerate(self.layers), self.start_layer, self.end_layer):", ""),
    "range": ("for i in range(self.start_layer, self.end_layer):", "layer = self.layers[i]"),
}
"""Loop heads, each with the statement that its body starts with."""

BOUNDED = frozenset(name for name, (head, _) in LOOPS.items() if "start_layer" in head)
"""Loops that run only the rank's own layers."""

FORMS = ("sum", "complete", "single")
AROUND = ("bare", "with", "branches", "continue", "injection")
RETURNS = ("name", "expression")


@dataclass(frozen=True, slots=True)
class Shape:
    """One combination.

    Attributes:
        loop: a key of `LOOPS`.
        form: `sum` (pair, fused add), `complete` (pair, hidden already added) or `single`.
        around: what surrounds the layer call: nothing, a `with`, a loop in each branch of an `if`, a `continue` that
            skips a layer, or an addition to the stream after the layer.
        returned: whether the forward returns a variable or an expression.
        pipeline: whether it hands tensors to a next rank (only with a bounded loop).
    """

    loop: str
    form: str
    around: str = "bare"
    returned: str = "name"
    pipeline: bool = False

    @property
    def pair(self) -> bool:
        """Whether the loop carries two tensors."""
        return self.form != "single"


_MODULE = """
import contextlib
from itertools import islice

import torch
from torch import nn


class Group:
    is_first_rank = True
    is_last_rank = True


GROUP = Group()


def get_pp_group():
    return GROUP


class IntermediateTensors:
    def __init__(self, tensors):
        self.tensors = tensors

    def __getitem__(self, key):
        return self.tensors[key]


class FusedNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x, residual=None):
        if residual is None:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        residual.add_(x)
        x.copy_(residual * torch.rsqrt(residual.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight)
        return x, residual


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.Linear(width, width)
        self.mlp = nn.Linear(width, width)
        self.first_norm = FusedNorm(width)
        self.second_norm = FusedNorm(width)

{layer}

class Decoder(nn.Module):
    aux_hidden_state_layers = ()
    layers_to_capture = ()

    def __init__(self, width=8, count=4, vocabulary=11):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(count)])
        self.extras = [0.0] * count
        self.scale = 2.0
        self.special = True
        self.start_layer, self.end_layer = 0, count
        self.norm = FusedNorm(width)
        self.injected = nn.Parameter(torch.linspace(-1, 1, width))

    def collect_remote_aux_hidden_states(self, intermediate_tensors):
        if intermediate_tensors is None:
            return []
        tensors = intermediate_tensors.tensors
        return [tensors[key] for key in sorted(tensors) if key.startswith("aux_")]

    def pack_local_aux_hidden_states(self, states):
        return {{f"aux_{{i}}": state for i, state in enumerate(states)}}

{forward}
"""

_LAYERS = {
    "sum": """
    def forward(self, positions, hidden_states, residual):
        if residual is None:
            residual = hidden_states
            hidden_states = self.first_norm(hidden_states)
        else:
            hidden_states, residual = self.first_norm(hidden_states, residual)
        hidden_states = self.attention(hidden_states) + positions
        hidden_states, residual = self.second_norm(hidden_states, residual)
        return self.mlp(hidden_states), residual
""",
    "complete": """
    def forward(self, positions, hidden_states, residual):
        residual = hidden_states
        hidden_states = self.first_norm(hidden_states)
        hidden_states = residual + self.attention(hidden_states) + self.mlp(hidden_states) + positions
        return hidden_states, residual
""",
    "single": """
    def forward(self, positions, hidden_states):
        residual = hidden_states
        hidden_states = self.attention(self.first_norm(hidden_states)) + positions
        hidden_states, residual = self.second_norm(hidden_states, residual)
        return self.mlp(hidden_states) + residual
""",
}


def decoder_source(shape: Shape) -> str:
    """The text of a module that defines `Decoder` in this shape; runnable with torch alone."""
    layer = textwrap.dedent(_LAYERS[shape.form])
    return _MODULE.format(layer=textwrap.indent(layer, "    "), forward=textwrap.indent(_forward(shape), "    "))


def shapes() -> SearchStrategy[Shape]:
    """A strategy over every shape that makes sense."""
    from hypothesis import strategies as st

    return st.builds(
        lambda loop, form, around, returned, pipeline: Shape(
            loop, form, around, returned, pipeline and loop in BOUNDED
        ),
        st.sampled_from(sorted(LOOPS)),
        st.sampled_from(FORMS),
        st.sampled_from(AROUND),
        st.sampled_from(RETURNS),
        st.booleans(),
    )


def _forward(shape: Shape) -> str:
    lines = ["def forward(self, input_ids, positions, intermediate_tensors=None, inputs_embeds=None):"]
    start = ["hidden_states = self.embed_tokens(input_ids) * self.scale"] + ["residual = None"] * shape.pair
    if shape.pipeline:
        lines += [
            "    if get_pp_group().is_first_rank:",
            *(f"        {line}" for line in start),
            "    else:",
            '        hidden_states = intermediate_tensors["hidden_states"]',
            *(['        residual = intermediate_tensors["residual"]'] * shape.pair),
        ]
    else:
        lines += [f"    {line}" for line in start]
    loop = _loop(shape)
    if shape.around == "branches":
        lines += [
            "    if self.special:",
            *_indented(loop, 2),
            "    else:",
            "        positions = positions * 1",
            *_indented(loop, 2),
        ]
    else:
        lines += _indented(loop, 1)
    if shape.pipeline:
        sent = (
            '{"hidden_states": hidden_states, "residual": residual}'
            if shape.pair
            else '{"hidden_states": hidden_states}'
        )
        lines += ["    if not get_pp_group().is_last_rank:", f"        return IntermediateTensors({sent})"]
    if shape.form == "sum":
        lines += ["    hidden_states, _ = self.norm(hidden_states, residual)"]
        last = "hidden_states"
    else:
        last = "self.norm(hidden_states)"
    if shape.returned == "name":
        if last != "hidden_states":
            lines += [f"    hidden_states = {last}"]
        lines += ["    return hidden_states"]
    else:
        lines += [f"    return {last}" if last != "hidden_states" else "    return hidden_states * 1"]
    return "\n".join(lines) + "\n"


def _loop(shape: Shape) -> list[str]:
    head, prelude = LOOPS[shape.loop]
    call = (
        "hidden_states, residual = layer(positions, hidden_states, residual)"
        if shape.pair
        else "hidden_states = layer(positions, hidden_states)"
    )
    body = [prelude] * bool(prelude)
    if shape.around == "continue":
        body += ["if layer is self.layers[1]:", "    continue"]
    if shape.around == "with":
        body += ["with contextlib.nullcontext():", f"    {call}"]
    else:
        body += [call]
    if shape.around == "injection":
        body += ["if self.special:", "    hidden_states = hidden_states + self.injected"]
    return [head, *_indented(body, 1)]


def _indented(lines: list[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]
