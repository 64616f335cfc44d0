"""The residual form from layer and norm code alone: every variant is a small module of its own, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle_adapters.codegen.loops import read_forward
from eagle_adapters.codegen.residual import read_residual
from eagle_adapters.codegen.sources import class_source_at
from eagle_adapters.codegen.streams import Residual, StreamForm

FUSED = """
class Norm(nn.Module):
    def forward(self, x, residual=None):
        if residual is None:
            return scale(x)
        return fused_add_norm(x, residual, self.weight)
"""
CUSTOM_OP = """
class CustomOp(nn.Module):
    def forward(self, *args):
        return self._forward_method(*args)

class Base(CustomOp):
    @staticmethod
    def _native(weight, x, residual):
        kind = x.dtype
        x = x.float() + residual.float()
        residual = x.to(kind)
        return x * weight, residual

    def forward_native(self, x, residual=None):
        if residual is None:
            return x * self.weight
        return self._native(self.weight, x, residual)

class Norm(Base):
    def forward(self, x, residual=None):
        if self.groups == 1:
            return super().forward(x, residual)
        if residual is not None:
            x = x + residual
            residual = x
        y = scale(x)
        return (y, residual) if residual is not None else y
"""
IGNORES = """
class Norm(nn.Module):
    def forward(self, hidden_states, residuals=None):
        return scale(hidden_states), residuals
"""
LLAMA = """
        if residual is None:
            residual = hidden_states
            hidden_states = self.first(hidden_states)
        else:
            hidden_states, residual = self.first(hidden_states, residual)
        hidden_states = self.attention(positions, hidden_states)
        hidden_states, residual = self.second(hidden_states, residual)
        return self.mlp(hidden_states), residual
"""
SANDWICH = """
        if residual is None:
            residual = hidden_states
            hidden_states = self.first(hidden_states)
        else:
            hidden_states, residual = self.first(hidden_states, residual)
        hidden_states = self.attention(positions, hidden_states) * self.multiplier
        if self.sandwich:
            hidden_states = self.third(hidden_states)
        hidden_states, residual = self.second(hidden_states, residual)
        hidden_states = self.mlp(hidden_states)
        if self.sandwich:
            hidden_states = self.third(hidden_states)
        return hidden_states, residual
"""
HALF_SCALED = LLAMA.replace(
    "        hidden_states, residual = self.second",
    "        if hidden_states.dtype == torch.float16:\n"
    "            hidden_states *= 1.0 / self.factor\n"
    "            residual *= 1.0 / self.factor\n"
    "        hidden_states, residual = self.second",
)
COHERE = """
        residual = hidden_states
        hidden_states, residual = self.first(hidden_states, residual)
        output = self.attention(positions, hidden_states) + self.mlp(hidden_states)
        hidden_states = residual + output
        return hidden_states, residual
"""
POST_NORM = """
        residual = hidden_states
        hidden_states = self.first(self.attention(positions, hidden_states))
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.second(self.mlp(hidden_states))
        hidden_states = (residual + hidden_states) * self.layer_scalar
        return hidden_states, residual
"""
NO_RESIDUAL = COHERE.replace("return hidden_states, residual", "return hidden_states, None")
SKIPS = """
        if self.skip_attention:
            pass
        else:
            hidden_states, residual = self.first(hidden_states, residual)
            hidden_states = self.attention(positions, hidden_states)
        if not self.skip_mlp:
            hidden_states, residual = self.second(hidden_states, residual)
            hidden_states = self.mlp(hidden_states)
        return hidden_states, residual
"""
DROPS = LLAMA.replace("return self.mlp(hidden_states), residual", "return self.mlp(hidden_states), hidden_states")
ADDS_TWICE = LLAMA.replace(
    "return self.mlp(hidden_states), residual", "return residual + self.mlp(hidden_states), residual"
)
METHOD = """
        hidden_states, residual = self.attend(positions, hidden_states, residual)
        return self.mlp(hidden_states), residual

    def attend(self, positions, hidden_states, residual):
        hidden_states, residual = self.first(hidden_states, residual)
        hidden_states = self.attention(positions, hidden_states)
        return self.second(hidden_states, residual)
"""
FUSED_END = "hidden_states, _ = self.norm(hidden_states, residual)"
PLAIN_END = "hidden_states = self.norm(hidden_states)"
ADD_END = "hidden_states = self.norm(hidden_states + residual)"
MAYBE_END = (
    "if residual is None:\n            hidden_states = self.norm(hidden_states)\n        else:\n            "
    + FUSED_END
)

CASES = {
    "fused norm": (FUSED, LLAMA, FUSED_END, StreamForm.SUM),
    "norm's own code": (CUSTOM_OP, LLAMA, FUSED_END, StreamForm.SUM),
    "sum by hand at the end": (FUSED, LLAMA, ADD_END, StreamForm.SUM),
    "maybe no residual at the end": (FUSED, LLAMA, MAYBE_END, StreamForm.SUM),
    "sandwich norms and a multiplier": (FUSED, SANDWICH, FUSED_END, StreamForm.SUM),
    "scaled in float16": (FUSED, HALF_SCALED, FUSED_END, StreamForm.SUM),
    "layers that skip a half": (FUSED, SKIPS, FUSED_END, StreamForm.SUM),
    "through a method": (FUSED, METHOD, FUSED_END, StreamForm.SUM),
    "norm that ignores the residual": (IGNORES, COHERE, FUSED_END, StreamForm.COMPLETE),
    "post norm and a layer scalar": (FUSED, POST_NORM, PLAIN_END, StreamForm.COMPLETE),
    "no residual handed on": (IGNORES, NO_RESIDUAL, PLAIN_END, StreamForm.COMPLETE),
    "no residual handed on, end open": (
        FUSED,
        NO_RESIDUAL.replace("self.first(hidden_states, residual)", "self.first(hidden_states), hidden_states"),
        MAYBE_END,
        StreamForm.SUM,
    ),
    "stream dropped": (FUSED, DROPS, FUSED_END, StreamForm.UNKNOWN),
    "stream counted twice": (FUSED, ADDS_TWICE, FUSED_END, StreamForm.UNKNOWN),
    "sum, but the end takes hidden alone": (FUSED, LLAMA, PLAIN_END, StreamForm.UNKNOWN),
    "complete, but the end adds": (FUSED, POST_NORM, FUSED_END, StreamForm.UNKNOWN),
}


def read(folder: Path, norm: str, layer: str, end: str, layers: str = "[Layer(config) for _ in range(4)]") -> Residual:
    (folder / "toy.py").write_text(
        f"""{norm}
class Layer(nn.Module):
    def __init__(self, config):
        self.first, self.second, self.third = Norm(), Norm(), Norm()
        self.first = Norm()
        self.second = Norm()
        self.third = Norm()

    def forward(self, positions, hidden_states, residual):{layer}
def pick(config):
    return Layer

TABLE = {{"layer": Layer}}

class Decoder(nn.Module):
    kinds = TABLE

    def __init__(self, config, layer_type=Layer):
        self.norm = Norm() if config.last else PPMissingLayer()

        def build(prefix):
            return layer_type(config)

        self.layers = {layers}

    def forward(self, ids, positions):
        hidden_states = self.embed(ids)
        residual = None
        for layer in self.layers:
            hidden_states, residual = layer(positions, hidden_states, residual)
        {end}
        return hidden_states
"""
    )
    decoder = class_source_at(folder, "toy", "Decoder")
    assert decoder is not None
    method = decoder.method("forward")
    assert method is not None
    return read_residual(read_forward(method), decoder)


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_form_follows_from_the_code(case: str, tmp_path: Path) -> None:
    norm, layer, end, form = CASES[case]
    residual = read(tmp_path, norm, layer, end)
    assert residual.form is form, residual.evidence
    assert residual.evidence
    assert all(str(tmp_path) in evidence.where for evidence in residual.evidence)
    assert residual.float16_safe is (case != "scaled in float16")
    assert (residual.refusal() is None) is (form is not StreamForm.UNKNOWN)


@pytest.mark.parametrize(
    "layers",
    [
        "make_layers(4, build)",
        "make_layers(4, lambda prefix: layer_type(config))",
        "make_layers(4, lambda prefix: pick(config)(config))",
        "nn.ModuleList([TABLE[kind](config) for kind in config.kinds])",
        "nn.ModuleList([self.kinds[kind](config) for kind in config.kinds])",
    ],
)
def test_the_class_of_the_layers_is_found_however_it_is_named(layers: str, tmp_path: Path) -> None:
    assert read(tmp_path, FUSED, LLAMA, FUSED_END, layers).form is StreamForm.SUM


def test_a_deferred_all_reduce_is_only_safe_on_one_rank(tmp_path: Path) -> None:
    layer = LLAMA.replace(
        "        return", "        self.layer_communicator.should_allreduce_fusion(hidden_states)\n        return"
    )
    residual = read(tmp_path, FUSED, layer, FUSED_END)
    assert residual.form is StreamForm.SUM
    assert not residual.tensor_parallel_safe


def test_an_unreduced_product_is_only_safe_when_the_layer_reduces_it(tmp_path: Path) -> None:
    layer = LLAMA + "\n    def make(self):\n        self.mlp = MLP(reduce_results=False)\n"
    assert not read(tmp_path, FUSED, layer, FUSED_END).tensor_parallel_safe
    (tmp_path / "again").mkdir()
    reduced = layer.replace("return self.mlp(hidden_states)", "return all_reduce(self.mlp(hidden_states))")
    assert read(tmp_path / "again", FUSED, reduced, FUSED_END).tensor_parallel_safe


def test_sharded_rows_are_the_same_stream_but_not_whole(tmp_path: Path) -> None:
    chunk = "        residual = sequence_parallel_chunk(residual)\n        hidden_states, residual = self.second"
    residual = read(tmp_path, FUSED, LLAMA.replace("        hidden_states, residual = self.second", chunk), FUSED_END)
    assert residual.form is StreamForm.SUM
    assert not residual.sequence_parallel_safe
    assert residual.tensor_parallel_safe
