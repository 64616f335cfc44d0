"""The one decoder of SGLang with an `islice` loop, on layers that count and SGLang's own residual stream.

ERNIE-4.5-VL's published config and weights are in a form that `transformers` no longer writes, so that there is no tiny
checkpoint of it to serve.
"""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import pytest
import torch
from sglang_cases import HERE

from eagle_adapters.backends.sglang import BACKEND
from eagle_adapters.codegen.compile import compile_method

# SGLang warns about absent accelerators when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore")

LAYERS = 8
START = 10.0


@pytest.fixture(scope="module")
def forward():
    """The planned forward of the decoder, as a function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SGLANG_USE_CPU_ENGINE", "1")
        patch.setattr(sys, "path", [str(HERE / "standin"), *sys.path])
        target = importlib.import_module("sglang.srt.models.ernie45_vl").Ernie4_5_VLMoeForConditionalGeneration
        plan = BACKEND.plan(target)
        edit = next(edit for edit in plan.edits if edit.kind == "instrument_forward")
        assert "islice(self.layers, self.start_layer, self.end_layer)" in edit.source
        owner = plan.owners[edit.owner]
        return compile_method(edit.source, "forward", owner, vars(sys.modules[owner.__module__]))


def add_one(positions, hidden_states, forward_batch, visual_token_mask):
    """A layer: applies the addition that the one before left to it, and leaves its own to the next."""
    from sglang.srt.layers.layer_boundary.residual import batch
    from sglang.srt.layers.layer_boundary.residual.add_norm import PLAIN_ADD

    stream = batch.stream_of(forward_batch)
    whole = stream.write(stream.snapshot(hidden_states))
    return stream.record(torch.ones_like(whole), PLAIN_ADD)


def decoder(boundaries):
    return SimpleNamespace(
        pp_group=SimpleNamespace(is_first_rank=True, is_last_rank=True),
        embed_tokens=lambda ids: torch.full((len(ids), 4), START),
        layers=[add_one] * LAYERS,
        start_layer=0,
        end_layer=LAYERS,
        norm=lambda hidden, residual=None, **more: (hidden + residual, hidden + residual),
        layers_to_capture=boundaries,
    )


@pytest.mark.parametrize("boundaries", [[0, 4, 8], [2, 4, 5], list(range(LAYERS + 1))], ids=str)
def test_the_states_are_those_of_their_boundaries(forward, boundaries):
    hidden, states = forward(decoder(boundaries), [1, 2, 3], None, SimpleNamespace(residual_stream=None))
    assert [state.unique().tolist() for state in states] == [[START + b] for b in boundaries]
    assert hidden.unique().tolist() == [START + LAYERS]


def test_nothing_is_captured_unless_it_is_asked_for(forward):
    hidden = forward(decoder(()), [1, 2, 3], None, SimpleNamespace(residual_stream=None))
    assert hidden.unique().tolist() == [START + LAYERS]
