from __future__ import annotations

from pathlib import Path

import pytest
import torch

from eagle_adapters.codegen.decoder import capturing_forward
from eagle_adapters.codegen.sources import class_source
from eagle_adapters.codegen.style import SGLANG, VLLM
from eagle_adapters.errors import AdaptationError
from eagle_adapters.testing.forwards import Shape, decoder_source
from eagle_adapters.testing.toys import build, capturing_class, inputs, load, walk

SHAPE = Shape("islice", "sum")
LOOP = """        for layer in islice(self.layers, self.start_layer, self.end_layer):
            hidden_states, residual = layer(positions, hidden_states, residual)
"""
RETURN = "        return hidden_states\n"

VLLM_LOOP = """        aux_hidden_states = []
        self._maybe_add_hidden_state(aux_hidden_states, self.start_layer, hidden_states.clone(), residual)
        for i, layer in enumerate(islice(self.layers, self.start_layer, self.end_layer)):
            hidden_states, residual = layer(positions, hidden_states, residual)
            self._maybe_add_hidden_state(aux_hidden_states, i + 1, hidden_states, residual)
"""
VLLM_RETURN = """        if len(aux_hidden_states) > 0:
            return hidden_states, aux_hidden_states
        return hidden_states
"""
VLLM_MIXIN = """    def _maybe_add_hidden_state(self, states, number, hidden, residual):
        if number in self.aux_hidden_state_layers:
            states.append(hidden if residual is None else hidden + residual)
        return states

"""
SGLANG_LOOP = """        aux_hidden_states = []
        for i in range(self.start_layer, self.end_layer):
            hidden_states, residual = self.layers[i](
                positions,
                hidden_states,
                residual,
                captured_last_layer_outputs=aux_hidden_states if i in self.layers_to_capture else None,
            )
"""
SGLANG_RETURN = """        if len(aux_hidden_states) == 0:
            return hidden_states
        return hidden_states, aux_hidden_states
"""
SGLANG_LAYER = """    def forward(self, positions, hidden_states, residual, captured_last_layer_outputs=None):
        if captured_last_layer_outputs is not None:
            state = hidden_states.clone() if residual is None else hidden_states + residual
            captured_last_layer_outputs.append(state)
"""


def edited(*changes: tuple[str, str]) -> str:
    source = decoder_source(SHAPE)
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    return source


def vllm_like() -> str:
    mixin = "    def collect_remote"
    return edited((LOOP, VLLM_LOOP), (RETURN, VLLM_RETURN), (mixin, VLLM_MIXIN + mixin))


def sglang_like() -> str:
    """Captures before a layer through the layer itself, and never reaches the last boundary."""
    layer = "    def forward(self, positions, hidden_states, residual):\n"
    return edited((LOOP, SGLANG_LOOP), (RETURN, SGLANG_RETURN), (layer, SGLANG_LAYER))


@pytest.mark.parametrize(("source", "style", "last"), [(vllm_like(), VLLM, True), (sglang_like(), SGLANG, False)])
def test_a_new_capture_equals_the_native_one_and_reaches_every_boundary(source, style, last, tmp_path: Path) -> None:
    module = load(source, tmp_path)
    ids, positions = inputs()
    native, ours = build(module), build(module)
    states = walk(native, SHAPE)
    plain = native(ids, positions)
    ours.__class__, instrumented = capturing_class(module, style, anew=True)
    assert "_maybe_add_hidden_state" not in instrumented.source
    assert "captured_last_layer_outputs" not in instrumented.source
    torch.testing.assert_close(ours(ids, positions), plain)
    wanted = (0, 1, 2, 3, 4)
    setattr(native, style.attribute, wanted)
    setattr(ours, style.attribute, wanted)
    output, captured = ours(ids, positions)
    native_output, native_captured = native(ids, positions)
    torch.testing.assert_close(output, native_output)
    torch.testing.assert_close(captured, states)
    assert len(native_captured) == (5 if last else 4)
    torch.testing.assert_close(captured[: len(native_captured)], native_captured)


def test_a_native_capture_is_not_replaced_unasked(tmp_path: Path) -> None:
    module = load(vllm_like(), tmp_path)
    with pytest.raises(AdaptationError) as caught:
        capturing_forward(module.Decoder, VLLM)
    assert caught.value.code == "EA426"


def test_the_digest_is_that_of_the_text_in_the_file(tmp_path: Path) -> None:
    from eagle_adapters.codegen.compile import source_digest

    module = load(vllm_like(), tmp_path)
    method = class_source(module.Decoder).method("forward")
    assert method is not None
    assert capturing_forward(module.Decoder, VLLM, anew=True).original_sha256 == source_digest(method.text)


def test_a_capture_that_feeds_the_result_cannot_be_taken_out(tmp_path: Path) -> None:
    norm = "self.norm(hidden_states, residual)"
    source = vllm_like().replace(norm, "self.norm(hidden_states + len(aux_hidden_states), residual)")
    with pytest.raises(AdaptationError) as caught:
        capturing_forward(load(source, tmp_path).Decoder, VLLM, anew=True)
    assert caught.value.code == "EA426"
