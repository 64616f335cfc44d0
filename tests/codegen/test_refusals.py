from __future__ import annotations

from pathlib import Path

import pytest
import torch

from eagle_adapters.codegen.decoder import capturing_forward
from eagle_adapters.codegen.style import SGLANG
from eagle_adapters.errors import AdaptationError
from eagle_adapters.testing.forwards import Shape, decoder_source
from eagle_adapters.testing.toys import build, capturing_class, inputs, load

PAIR = decoder_source(Shape("islice", "sum"))
SINGLE = decoder_source(Shape("plain", "single"))
LOOP = "for layer in islice(self.layers, self.start_layer, self.end_layer):"
CALL = "hidden_states, residual = layer(positions, hidden_states, residual)"

SINGLE_CALL = "hidden_states = layer(positions, hidden_states)"
NORM = "    hidden_states = self.norm(hidden_states)"
DETOUR = """        if not self.special:
            hidden_states = run_all(self.layers[2:], hidden_states)
"""

REFUSED = {
    "no loop": (PAIR, LOOP, "for layer in layers_of(self):", "EA421"),
    "break": (PAIR, CALL, f"{CALL}\n            if hidden_states is None:\n                break", "EA422"),
    "backwards": (PAIR, LOOP, "for layer in reversed(self.layers):", "EA421"),
    "loop with else": (
        PAIR,
        CALL,
        f"{CALL}\n        else:\n            positions = positions * 1",
        "EA422",
    ),
    "two loops": (SINGLE, NORM, f"    for layer in self.layers:\n            {SINGLE_CALL}\n    {NORM}", "EA422"),
    "result not assigned": (PAIR, CALL, "out = [layer(positions, hidden_states, residual)]", "EA421"),
    "nothing carried": (PAIR, CALL, "out = layer(positions, hidden_states, residual)", "EA423"),
    "three carried": (
        PAIR,
        CALL,
        "hidden_states, residual, positions = layer(positions, hidden_states, residual)",
        "EA423",
    ),
    "layers run twice": (
        PAIR,
        f"    {LOOP}\n            {CALL}",
        f"    for _ in range(2):\n            {LOOP}\n                {CALL}",
        "EA424",
    ),
    "residual lost": (
        PAIR,
        "return self.mlp(hidden_states), residual",
        "return self.mlp(hidden_states), hidden_states",
        "EA425",
    ),
    "stream scaled": (
        PAIR,
        "return self.mlp(hidden_states), residual",
        "return self.mlp(hidden_states), residual * 2",
        "EA425",
    ),
    "last norm disagrees": (
        PAIR,
        "hidden_states, _ = self.norm(hidden_states, residual)",
        "hidden_states = self.norm(hidden_states)",
        "EA425",
    ),
    "several streams": (
        PAIR,
        "self.mlp = nn.Linear(width, width)",
        "self.mlp = nn.Linear(width, width); self.hc_mult = 4",
        "EA425",
    ),
    "layers of unknown class": (PAIR, "[Layer(width) for _ in range(count)]", "make(width, count)", "EA425"),
    "captures already": (
        PAIR,
        CALL,
        f"{CALL}\n            self._maybe_add_hidden_state([], 0, hidden_states, residual)",
        "EA426",
    ),
    "returns a tuple": (PAIR, "return hidden_states\n", "return hidden_states, residual\n", "EA427"),
    "sharded stream": (
        PAIR,
        "residual = None\n        for",
        "residual = None\n        hidden_states = sequence_parallel_chunk(hidden_states)\n        for",
        "EA428",
    ),
}


def test_a_decoder_that_its_owner_runs_in_a_loop_is_refused(tmp_path: Path) -> None:
    owner = """

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack = Decoder()

    def forward(self, input_ids, positions):
        for _ in range(3):
            hidden_states = self.stack(input_ids, positions)
        return hidden_states
"""
    with pytest.raises(AdaptationError) as caught:
        capturing_forward(load(PAIR + owner, tmp_path).Decoder, SGLANG)
    assert caught.value.code == "EA424"


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_captured_safely_is_refused_with_its_place(case: str, tmp_path: Path) -> None:
    source, old, new, code = REFUSED[case]
    assert source.count(old) >= 1
    module = load(source.replace(old, new), tmp_path)
    with pytest.raises(AdaptationError) as caught:
        capturing_forward(module.Decoder, SGLANG)
    finding = caught.value.diagnostics[0]
    assert finding.code == code
    assert (finding.where or "").startswith(f"{module.__file__}:")


def test_a_class_without_a_file_is_refused() -> None:
    cls = type("Nowhere", (torch.nn.Module,), {"__module__": "nowhere"})
    with pytest.raises(AdaptationError) as caught:
        capturing_forward(cls, SGLANG)
    assert caught.value.code == "EA420"


def test_a_result_beside_the_loop_raises_only_when_states_are_asked_for(tmp_path: Path) -> None:
    source = PAIR.replace(
        "    residual = None\n        for",
        "    residual = None\n        if self.special:\n            return hidden_states\n        for",
    )
    module = load(source, tmp_path)
    cls, _ = capturing_class(module, SGLANG)
    decoder = build(module)
    decoder.__class__ = cls
    ids, positions = inputs()
    assert decoder(ids, positions).shape == (5, 8)
    decoder.layers_to_capture = (2,)
    with pytest.raises(RuntimeError, match="cannot be captured"):
        decoder(ids, positions)
    decoder.special = False
    assert len(decoder(ids, positions)[1]) == 1


def test_layers_handed_to_other_code_raise_only_when_states_are_asked_for(tmp_path: Path) -> None:
    norm = "        hidden_states, _ = self.norm("
    source = PAIR.replace(norm, DETOUR + norm)
    module = load(source + "\n\ndef run_all(layers, hidden_states):\n    return hidden_states\n", tmp_path)
    cls, _ = capturing_class(module, SGLANG)
    decoder = build(module)
    decoder.__class__ = cls
    ids, positions = inputs()
    decoder.layers_to_capture = (1, 4)
    assert len(decoder(ids, positions)[1]) == 2
    decoder.special = False
    with pytest.raises(RuntimeError, match="outside the loop"):
        decoder(ids, positions)
