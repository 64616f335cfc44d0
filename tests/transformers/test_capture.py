"""Capturing through the real forward: generate, KV cache, padding, half precision, checkpointing, compile."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from eagle_adapters import unwrap, wrap
from eagle_adapters.errors import AdaptationError, BoundaryError, UsageError
from eagle_adapters.tiny import build_tiny, image_inputs, text_inputs, tiny_config
from eagle_adapters.verify.reference import reference_states

ALL = range(9)


def forward(model: Any, inputs: dict[str, Any], boundaries: Any = ALL) -> Any:
    with torch.no_grad(), model.eagle3_capture(boundaries) as states:
        model(**inputs)
    return states


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_generate_captures_prefill_and_every_decode_step(kimi: Any) -> None:
    inputs = image_inputs(kimi)
    with kimi.eagle3_capture([2, 4, 5]) as states:
        tokens = kimi.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
    prompt = inputs["input_ids"].shape[1]
    assert [step[2].shape[1] for step in states.steps] == [prompt, 1, 1, 1, 1, 1]
    whole = {**inputs, "input_ids": tokens[:, :-1], "attention_mask": torch.ones_like(tokens[:, :-1])}
    reference = reference_states(build_tiny("kimi_k25"), whole, 990)
    for boundary in (2, 4, 5):
        assert states[boundary].shape == (1, prompt + 5, 256)
        assert_close(states[boundary][0], reference.states[boundary])


def test_only_the_asked_states_are_kept(llama: Any) -> None:
    states = forward(llama, text_inputs(llama), [7, 3])
    (step,) = states.steps
    assert list(step) == [7, 3]
    with pytest.raises(KeyError, match="boundary 4"):
        states[4]


def test_without_boundaries_the_defaults_are_captured(llama: Any) -> None:
    assert list(forward(llama, text_inputs(llama), None).boundaries) == [2, 4, 5]


@pytest.mark.parametrize(("boundaries", "code"), [([9], "EA001"), ([-1], "EA001"), ([2, 2], "EA002")])
def test_boundaries_are_checked_before_anything_runs(llama: Any, boundaries: list[int], code: str) -> None:
    with pytest.raises(BoundaryError, match=code):
        llama.eagle3_capture(boundaries)


def test_left_padding_in_a_batch_changes_no_state(llama: Any) -> None:
    single = text_inputs(llama, tokens=7, seed=1)
    alone = forward(llama, single)
    ids = torch.zeros(2, 12, dtype=torch.long)
    mask = torch.zeros_like(ids)
    ids[0, 5:], mask[0, 5:] = single["input_ids"][0], 1
    ids[1], mask[1] = text_inputs(llama, tokens=12, seed=2)["input_ids"][0], 1
    batch = forward(
        llama, {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp_min(0)}
    )
    for boundary in ALL:
        assert_close(batch[boundary][0, 5:], alone[boundary][0])


def test_generate_with_a_padded_batch(llama: Any) -> None:
    inputs = text_inputs(llama, batch=2, tokens=8)
    inputs["input_ids"][0, :3] = 0
    inputs["attention_mask"][0, :3] = 0
    with llama.eagle3_capture([0, 4, 8]) as states:
        tokens = llama.generate(**inputs, max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
    reference = reference_states(build_tiny("llama"), {"input_ids": tokens[:1, 3:-1]}, None)
    for boundary in (0, 4, 8):
        assert states[boundary].shape == (2, 11, 128)
        assert_close(states[boundary][0, 3:], reference.states[boundary])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_states_are_the_models_own(wrapped: Any, dtype: torch.dtype) -> None:
    model = wrapped(build_tiny("llama", dtype=dtype))
    inputs = text_inputs(model)
    states = forward(model, inputs)
    reference = reference_states(build_tiny("llama", dtype=dtype), inputs, None)
    for boundary in ALL:
        assert states[boundary].dtype is dtype
        assert torch.equal(states[boundary][0], reference.states[boundary])


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_records_each_layer_once(llama: Any, reentrant: bool) -> None:
    inputs = text_inputs(llama)
    expected = forward(llama, inputs)
    llama.gradient_checkpointing_enable({"use_reentrant": reentrant})
    llama.enable_input_require_grads()
    llama.train()
    with llama.eagle3_capture(ALL) as states:
        llama(**inputs, labels=inputs["input_ids"], use_cache=False).loss.backward()
    assert len(states) == 1
    for boundary in ALL:
        assert_close(states[boundary], expected[boundary])
        assert not states[boundary].requires_grad
    assert llama.lm_head.weight.grad is not None


def shallow(name: str, layers: int) -> Any:
    """A tiny model with fewer layers, since compiling takes as long as there are layers."""
    fields = tiny_config(name)
    fields.get("text_config", fields)["num_hidden_layers"] = layers
    return build_tiny(fields)


@pytest.mark.parametrize(("name", "backend"), [("llama", "aot_eager"), ("kimi_k25", "eager")])
def test_a_compiled_model_captures_the_same(wrapped: Any, name: str, backend: str) -> None:
    model = wrapped(shallow(name, 2))
    inputs = text_inputs(model)
    expected = forward(model, inputs, range(3))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        plain = compiled(**inputs).logits
        with model.eagle3_capture(range(3)) as states:
            captured = compiled(**inputs).logits
        after = compiled(**inputs).logits
    assert len(states) == 1
    for boundary in range(3):
        assert_close(states[boundary], expected[boundary])
    assert_close(captured, plain)
    assert_close(after, plain)


def test_without_a_capture_a_wrapped_model_compiles_to_one_graph(wrapped: Any) -> None:
    torch._dynamo.reset()
    model = wrapped(shallow("llama", 2))
    inputs = text_inputs(model)["input_ids"]
    with torch.no_grad():
        explanation = torch._dynamo.explain(lambda ids: model(input_ids=ids, use_cache=False).logits)(inputs)
    assert (explanation.graph_count, explanation.graph_break_count) == (1, 0)


def test_states_of_a_compiled_model_are_copied_outside_of_its_graph(wrapped: Any) -> None:
    """A backend that reuses its output buffers, as CUDA graphs do, must not change what was captured before."""
    torch._dynamo.reset()

    def reusing(graph: Any, examples: Any) -> Any:
        buffers: dict[tuple[int, torch.Size], torch.Tensor] = {}

        def replay(*arguments: Any) -> Any:
            return tuple(
                buffers.setdefault((place, value.shape), torch.empty_like(value)).copy_(value)
                if isinstance(value, torch.Tensor)
                else value
                for place, value in enumerate(graph(*arguments))
            )

        return replay

    model = wrapped(shallow("llama", 2))
    prompts = [text_inputs(model, seed=seed) for seed in range(3)]
    expected = [forward(model, prompt, range(3)) for prompt in prompts]
    compiled = torch.compile(model, backend=reusing)
    captured = []
    with torch.no_grad():
        for prompt in prompts:
            with model.eagle3_capture(range(3)) as states:
                compiled(**prompt, use_cache=False)
            captured.append(states)
    for found, truth in zip(captured, expected, strict=True):
        for boundary in range(3):
            assert_close(found[boundary], truth[boundary])


def test_compiled_before_it_was_wrapped_is_never_silently_empty() -> None:
    torch._dynamo.reset()
    model = shallow("llama", 2)
    inputs = text_inputs(model)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(**inputs)
        wrap(model)
        try:
            with model.eagle3_capture([2]) as states:
                compiled(**inputs)
            with pytest.raises(AdaptationError, match="EA501"):
                states[2]
        finally:
            unwrap(model)


def test_snapshots_survive_later_writes_in_place(wrapped: Any) -> None:
    model = build_tiny("llama")
    expected = reference_states(model, text_inputs(model), None)

    def destroy_input(module: Any, args: Any, output: Any) -> None:
        args[0].fill_(7.0)

    for layer in model.model.layers:
        layer.register_forward_hook(destroy_input)
    states = forward(wrapped(model), text_inputs(model))
    for boundary in ALL:
        assert_close(states[boundary][0], expected.states[boundary])


def test_ordinary_outputs_do_not_change(llama: Any) -> None:
    inputs = text_inputs(llama)
    expected = build_tiny("llama")(**inputs, output_hidden_states=True)
    with torch.no_grad():
        idle = llama(**inputs, output_hidden_states=True)
        with llama.eagle3_capture(ALL):
            busy = llama(**inputs, output_hidden_states=True)
    for found in (idle, busy):
        assert torch.equal(found.logits, expected.logits)
        assert all(torch.equal(a, b) for a, b in zip(found.hidden_states, expected.hidden_states, strict=True))


def test_one_capture_at_a_time_and_a_failed_forward_leaves_nothing_open(llama: Any) -> None:
    inputs = text_inputs(llama)
    with llama.eagle3_capture([2]), pytest.raises(UsageError, match="EA502"), llama.eagle3_capture([3]):
        pass
    with pytest.raises(TypeError), llama.eagle3_capture([2]) as failed:
        llama(input_ids="not ids")
    with pytest.raises(AdaptationError, match="EA501"):
        failed[2]
    assert len(forward(llama, inputs, [2])) == 1


def test_a_capture_without_a_forward_says_so(llama: Any) -> None:
    with llama.eagle3_capture([2]) as states:
        pass
    with pytest.raises(AdaptationError, match="EA501"):
        states.steps  # noqa: B018


def test_a_copy_of_a_wrapped_model_captures_its_own_states(llama: Any) -> None:
    clone = copy.deepcopy(llama)
    with torch.no_grad():
        clone.model.embed_tokens.weight.mul_(2)
    mine, theirs = forward(llama, text_inputs(llama), [0]), forward(clone, text_inputs(llama), [0])
    assert_close(theirs[0], 2 * mine[0])
    assert len(mine) == len(theirs) == 1


def test_embedding_and_head_are_the_models_own(kimi: Any) -> None:
    embedding, head = kimi.get_embed_and_head()
    assert embedding is kimi.model.language_model.embed_tokens.weight
    assert head is kimi.lm_head.weight


def test_several_streams_are_refused_before_anything_runs() -> None:
    model = build_tiny("gemma3n")
    with pytest.raises(AdaptationError, match="AltUp keeps several streams"):
        wrap(model)


def test_layers_that_carry_no_single_stream_are_refused_when_they_run(wrapped: Any) -> None:
    model = wrapped(build_tiny("llama"))
    model.model.layers[2].register_forward_hook(lambda module, args, output: output[None])
    with pytest.raises(AdaptationError, match="EA503"), model.eagle3_capture([3]):
        model(**text_inputs(model))


def test_layers_held_in_a_dict(wrapped: Any) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = nn.Linear(8, 8)

        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = hidden_states + self.mlp(hidden_states)
            return result

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(20, 8)
            self.layers = nn.ModuleDict({str(i): Block() for i in range(7)})
            self.norm = nn.LayerNorm(8)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            hidden = self.embed_tokens(ids)
            for layer in self.layers.values():
                hidden = layer(hidden_states=hidden)
            result: torch.Tensor = self.norm(hidden)
            return result

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Decoder()
            self.lm_head = nn.Linear(8, 20)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.lm_head(self.model(ids))
            return result

    model = wrapped(Model())
    with model.eagle3_capture([0, 1]) as states:
        model(torch.arange(5)[None])
    assert_close(states[0], model.model.embed_tokens(torch.arange(5)[None]))
    assert_close(states[1], model.model.layers["0"](states[0]))
