from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from eagle_adapters.codegen.style import SGLANG, VLLM
from eagle_adapters.testing.forwards import AROUND, BOUNDED, FORMS, LOOPS, Shape, decoder_source, shapes
from eagle_adapters.testing.toys import build, capturing_class, inputs, load, walk

ALL = (0, 1, 2, 3, 4)


def check(
    shape: Shape, folder: Path, backend: str | None = None, asked: tuple[tuple[int, ...], ...] = (ALL, (0,), (2, 4))
) -> None:
    """Same output as the original, no states unless asked, and the right state at every boundary."""
    style = VLLM if shape.pipeline else SGLANG
    module = load(decoder_source(shape), folder)
    original = build(module)
    ids, positions = inputs()
    expected = original(ids, positions)
    states = walk(original, shape)
    cls, instrumented = capturing_class(module, style)
    assert instrumented.residual.form == shape.form
    assert instrumented.relay is shape.pipeline
    assert instrumented.pipeline_safe is (shape.loop in BOUNDED)
    decoder = build(module)
    decoder.__class__ = cls
    run = decoder if backend is None else torch.compile(decoder, backend=backend, fullgraph=True)
    torch.testing.assert_close(run(ids, positions), expected)
    for wanted in asked:
        setattr(decoder, style.attribute, wanted)
        output, captured = run(ids, positions)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(captured, [states[boundary] for boundary in wanted])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_every_loop_captures_the_stream_at_every_boundary(loop: str, form: str, tmp_path: Path) -> None:
    check(Shape(loop, form), tmp_path)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("form", FORMS)
def test_surroundings_of_the_layer_call_are_part_of_the_state(form: str, around: str, tmp_path: Path) -> None:
    check(Shape("islice", form, around, "expression"), tmp_path)


@pytest.mark.parametrize(
    ("shape", "backend"),
    [
        (Shape("islice", "sum"), "eager"),
        (Shape("range", "complete", "with"), "aot_eager"),
        (Shape("zip", "single", "injection"), "aot_eager"),
    ],
)
def test_the_generated_forward_is_one_graph(shape: Shape, backend: str, tmp_path: Path) -> None:
    torch._dynamo.reset()
    check(shape, tmp_path, backend, asked=((0, 2, 4),))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes())
def test_any_shape_keeps_its_output_and_gives_its_states(shape: Shape) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(shape, Path(folder))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loop", sorted(BOUNDED))
@pytest.mark.parametrize("cut", [1, 3])
def test_states_of_all_pipeline_ranks_arrive_at_the_last(loop: str, form: str, cut: int, tmp_path: Path) -> None:
    shape = Shape(loop, form, pipeline=True)
    module = load(decoder_source(shape), tmp_path)
    ids, positions = inputs()
    expected, states = build(module)(ids, positions), walk(build(module), shape)
    cls, _ = capturing_class(module, VLLM)
    decoder = build(module)
    decoder.__class__ = cls
    decoder.aux_hidden_state_layers = ALL
    decoder.start_layer, decoder.end_layer = 0, cut
    module.GROUP.is_first_rank, module.GROUP.is_last_rank = True, False
    sent = decoder(ids, positions)
    assert isinstance(sent, module.IntermediateTensors)
    decoder.start_layer, decoder.end_layer = cut, 4
    module.GROUP.is_first_rank, module.GROUP.is_last_rank = False, True
    output, captured = decoder(ids, positions, sent)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(captured, states)


def test_the_source_text_is_readable_and_stable(tmp_path: Path) -> None:
    module = load(decoder_source(Shape("islice", "sum", pipeline=True)), tmp_path)
    _, instrumented = capturing_class(module, VLLM)
    again = capturing_class(module, VLLM)[1]
    assert instrumented == again
    assert (
        "aux_hidden_states.append(hidden_states.clone() if residual is None else hidden_states + residual)"
        in instrumented.source
    )
    assert (
        "enumerate(islice(self.layers, self.start_layer, self.end_layer), start=self.start_layer)"
        in instrumented.source
    )
    assert "**self.pack_local_aux_hidden_states(aux_hidden_states)" in instrumented.source
