"""What counts as an SGLang decoder's own capture of boundaries, and how it is completed by the last one."""

from __future__ import annotations

import textwrap

import pytest

from eagle_adapters.backends.sglang.last import with_last_boundary
from eagle_adapters.backends.sglang.own import OwnCapture, Place, captures_itself, own_capture
from eagle_adapters.codegen.loops import read_forward
from eagle_adapters.codegen.native import strip
from eagle_adapters.codegen.sources import MethodSource
from eagle_adapters.errors import AdaptationError

HEAD = """
def forward(self, input_ids, positions, forward_batch):
    hidden_states = self.embed_tokens(input_ids)
    residual_batch.start(forward_batch)
    aux_hidden_states = AuxHiddenStateList()
"""
HANDED = """
    for i in range(self.start_layer, self.end_layer):
        layer = self.layers[i]
        hidden_states = layer(
            positions, hidden_states, forward_batch,
            capture_output=aux_hidden_states.capture if i in self.layers_to_capture else None,
        )
"""
MARKED = """
    for i in range(len(self.layers)):
        layer = self.layers[i]
        hidden_states = layer(
            positions, hidden_states, forward_batch,
            captured_last_layer_outputs=aux_hidden_states if getattr(layer, "_is_layer_to_capture", False) else None,
        )
"""
SNAPSHOT = """
    for i in range(self.start_layer, self.end_layer):
        if i in self.layers_to_capture:
            aux_hidden_states.append(residual_batch.snapshot(hidden_states, forward_batch))
        hidden_states = self.layers[i](positions, hidden_states, forward_batch)
"""
AFTER_THE_LAYER = """
    for i in range(self.start_layer, self.end_layer):
        hidden_states = self.layers[i](positions, hidden_states, forward_batch)
        if i in self.layers_to_capture:
            aux_hidden_states.append(residual_batch.snapshot(hidden_states, forward_batch))
"""
SHIFTED = HANDED.replace("if i in self", "if i > 0 and (i - 1 in self").replace(
    "capture else None", "capture) else None"
)
OUTPUT_ALONE = SNAPSHOT.replace("residual_batch.snapshot(hidden_states, forward_batch)", "hidden_states")
UNROLLED = "\n    for turn in range(2):" + HANDED.replace("\n    ", "\n        ").replace(
    "if i in", "if turn * 9 + i in"
)
NORM = "    hidden_states = residual_batch.final_norm(hidden_states, forward_batch, self.norm)\n"
NORM_AND_LAST = NORM.replace(
    "self.norm)",
    "self.norm, capture=aux_hidden_states.capture if self.end_layer in self.layers_to_capture else None)",
)
LAST_OUTPUT = (
    "    if self.end_layer in self.layers_to_capture:\n        aux_hidden_states.append(hidden_states)\n" + NORM
)
END = "    if len(aux_hidden_states) == 0:\n        return hidden_states\n    return hidden_states, aux_hidden_states\n"


def method(*parts):
    text = "".join((HEAD, *parts, END))
    return MethodSource("forward", "toy:Decoder", textwrap.dedent(text).lstrip(), "toy.py", 1)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((HANDED, NORM), OwnCapture(Place.LIST, reaches_last=False)),
        ((MARKED, NORM), OwnCapture(Place.MARK, reaches_last=False)),
        ((SNAPSHOT, NORM), OwnCapture(Place.LIST, reaches_last=False)),
        ((HANDED, NORM_AND_LAST), OwnCapture(Place.LIST, reaches_last=True)),
    ],
    ids=["handed", "marked", "snapshot", "last"],
)
def test_inputs_of_layers_in_the_engines_stream_are_boundaries(parts, expected):
    assert own_capture(method(*parts)) == expected


@pytest.mark.parametrize(
    "parts",
    [
        (AFTER_THE_LAYER, NORM),
        (SHIFTED, NORM),
        (OUTPUT_ALONE, NORM),
        (UNROLLED, NORM),
        (HANDED, LAST_OUTPUT),
    ],
    ids=["output", "shifted", "no residual", "layers run twice", "last output alone"],
)
def test_everything_else_is_not_trusted(parts):
    found = method(*parts)
    assert captures_itself(found)
    assert own_capture(found) is None


def test_a_stream_that_the_engine_does_not_keep_is_not_trusted():
    found = method(HANDED, NORM)
    plain = MethodSource(
        found.name, found.owner, found.text.replace("residual_batch.start(forward_batch)", "pass"), found.file, 1
    )
    assert own_capture(plain) is None


class _Stream:
    """The engine's functions on numbers: a value is complete once `complete_output` was called."""

    def start(self, batch):
        batch.log = []

    def complete_output(self, value, batch):
        batch.log.append("completed")
        return value

    def snapshot(self, value, batch):
        assert batch.log[-1] == "completed"
        return value + 0.5

    def final_norm(self, value, batch, norm):
        return norm(value)


class _Decoder:
    start_layer, end_layer = 0, 3

    def __init__(self, wanted):
        self.layers_to_capture = wanted
        self.layers = [self.layer] * 3
        self.embed_tokens = self.norm = float

    def layer(self, positions, hidden, batch, capture_output=None):
        if capture_output is not None:
            capture_output(hidden)
        return hidden + 1


class _States(list):
    capture = list.append


@pytest.mark.parametrize(("wanted", "states"), [([], None), ([0, 2], [0.0, 2.0]), ([1, 3], [1.0, 3.5]), ([3], [3.5])])
def test_the_last_boundary_is_added_before_the_final_norm(wanted, states):
    found = method(HANDED, NORM)
    text = with_last_boundary(found, read_forward(strip(found), "layers"))
    scope = {"residual_batch": _Stream(), "AuxHiddenStateList": _States}
    exec(text, scope)
    batch = type("Batch", (), {})()
    given = scope["forward"](_Decoder(wanted), 0, None, batch)
    assert given == (3.0 if states is None else (3.0, states))
    assert own_capture(MethodSource("forward", "toy:Decoder", text, "toy.py", 1)) == OwnCapture(
        Place.LIST, reaches_last=True
    )


def test_a_stream_whose_end_is_not_plain_is_refused():
    found = method(HANDED, "    hidden_states = self.head(hidden_states)\n")
    with pytest.raises(AdaptationError) as caught:
        with_last_boundary(found, read_forward(strip(found), "layers"))
    assert caught.value.code == "EA542"
