"""What a speculative config asks for is settled once, the same for both model runners, or refused with a reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from eagle_adapters.backends.vllm.request import CONVENTION_ENV, settle
from eagle_adapters.errors import AdaptationError, BoundaryError


def vllm_config(
    draft: dict[str, Any], *, layers: int = 8, width: int = 64, model: str = "/nowhere", **target: Any
) -> Any:
    """The parts of a `VllmConfig` that matter, with vLLM's own objects where their code is called."""
    hf = SimpleNamespace(**draft)
    draft_config = SimpleNamespace(hf_config=hf, model=model)
    return SimpleNamespace(
        speculative_config=SimpleNamespace(method="eagle3", draft_model_config=draft_config),
        model_config=SimpleNamespace(
            hf_config=SimpleNamespace(**target),
            get_total_num_hidden_layers=lambda: layers,
            get_hidden_size=lambda: width,
            is_encoder_decoder=False,
        ),
        parallel_config=SimpleNamespace(pipeline_parallel_size=1, tensor_parallel_size=1, enable_dbo=False),
        use_v2_model_runner=False,
    )


def nested(*ids: int) -> dict[str, Any]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}}


def top(*ids: int) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(ids)}


def runner_ids(config: Any) -> tuple[Any, Any]:
    """What runner V1 and runner V2 read from a configuration, by vLLM's own functions."""
    from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import get_eagle3_aux_layers_from_config
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    runner = SimpleNamespace(speculative_config=config.speculative_config)
    return (
        GPUModelRunner._get_eagle3_aux_layers_from_config(runner),
        get_eagle3_aux_layers_from_config(config.speculative_config),
    )


def test_stock_runners_disagree_about_nested_ids() -> None:
    assert runner_ids(vllm_config(nested(2, 4, 5))) == ((2, 4, 5), None)


@pytest.mark.parametrize(
    ("draft", "boundaries"),
    [
        (nested(2, 4, 5), (2, 4, 5)),
        (nested(1, 3, 4), (2, 4, 5)),
        (top(1, 3, 4), (2, 4, 5)),
        (top(0, 4, 8), (0, 4, 8)),
        ({}, (2, 4, 5)),
        ({**nested(2, 4, 5), **top(2, 4, 5)}, (2, 4, 5)),
    ],
)
def test_both_runners_read_the_same_boundaries(draft, boundaries) -> None:
    config = vllm_config(draft)
    settle(config)
    settle(config)
    assert runner_ids(config) == (boundaries, boundaries)
    assert config.speculative_config.draft_model_config.hf_config.num_aux_hidden_states == len(boundaries)


@pytest.mark.parametrize(("convention", "boundaries"), [("boundary", (1, 3, 6)), ("layer_output", (2, 4, 7))])
def test_a_declared_convention_decides(convention, boundaries, monkeypatch) -> None:
    monkeypatch.setenv(CONVENTION_ENV, convention)
    config = vllm_config(nested(1, 3, 6))
    settle(config)
    assert runner_ids(config) == (boundaries, boundaries)


@pytest.mark.parametrize(
    ("draft", "code"),
    [
        (nested(1, 3, 6), "EA005"),
        (nested(2, 2, 5), "EA002"),
        (nested(2, 4, 11), "EA001"),
        (nested(8, 2, 4), "EA527"),
        ({**nested(2, 4, 5), **top(1, 3, 5)}, "EA520"),
        ({**nested(2, 4, 5), "num_aux_hidden_states": 4}, "EA528"),
    ],
)
def test_what_cannot_be_right_is_refused(draft, code) -> None:
    config = vllm_config(draft)
    before = dict(vars(config.speculative_config.draft_model_config.hf_config))
    with pytest.raises((AdaptationError, BoundaryError)) as caught:
        settle(config)
    assert caught.value.code == code
    assert caught.value.diagnostics[0].expected
    assert vars(config.speculative_config.draft_model_config.hf_config) == before


def test_undecided_ids_say_how_to_declare_them() -> None:
    with pytest.raises(BoundaryError, match=f"{CONVENTION_ENV}=layer_output"):
        settle(vllm_config(nested(1, 3, 6)))


def test_a_convention_that_does_not_exist_is_refused(monkeypatch) -> None:
    monkeypatch.setenv(CONVENTION_ENV, "layer")
    with pytest.raises(BoundaryError, match="layer_output"):
        settle(vllm_config(nested(1, 3, 6)))


@pytest.mark.parametrize("states", [2, 4])
def test_fc_of_another_width_is_refused(states, tmp_path) -> None:
    save_file({"fc.weight": torch.zeros(64, 64 * states)}, tmp_path / "model.safetensors")
    with pytest.raises(AdaptationError, match=f"{states} states of 64") as caught:
        settle(vllm_config(nested(2, 4, 5), model=str(tmp_path)))
    assert caught.value.code == "EA528"


def test_fc_of_the_right_width_passes(tmp_path) -> None:
    save_file({"fc.weight": torch.zeros(64, 64 * 4)}, tmp_path / "model.safetensors")
    config = vllm_config(top(2, 4, 5, 8), model=str(tmp_path))
    settle(config)
    assert runner_ids(config) == ((2, 4, 5, 8), (2, 4, 5, 8))


@pytest.mark.parametrize("own", [True, False])
def test_a_narrow_embedding_cannot_be_shared(own, tmp_path) -> None:
    tensors = {"fc.weight": torch.zeros(64, 64 * 3)} | ({"embed_tokens.weight": torch.zeros(9, 64)} if own else {})
    save_file(tensors, tmp_path / "model.safetensors")
    config = vllm_config({**nested(2, 4, 5), "hidden_size": 64}, model=str(tmp_path), word_embed_proj_dim=32)
    if own:
        settle(config)
    else:
        with pytest.raises(AdaptationError, match="an embedding of width 32 in the target") as caught:
            settle(config)
        assert caught.value.code == "EA533"


def test_a_draft_without_states_is_left_alone_on_v1_and_refused_on_v2() -> None:
    draft = {"eagle_config": {"use_aux_hidden_state": False, "eagle_aux_hidden_state_layer_ids": [1, 3, 6]}}
    config = vllm_config(draft)
    settle(config)
    assert runner_ids(config)[0] == (1, 3, 6)
    config.use_v2_model_runner = True
    with pytest.raises(AdaptationError, match="VLLM_USE_V2_MODEL_RUNNER=0"):
        settle(config)


def test_an_encoder_decoder_is_refused() -> None:
    config = vllm_config(nested(2, 4, 5))
    config.model_config.is_encoder_decoder = True
    with pytest.raises(AdaptationError, match="encoder-decoder") as caught:
        settle(config)
    assert caught.value.code == "EA526"


def test_pipeline_parallel_on_v1_is_refused() -> None:
    config = vllm_config(nested(2, 4, 5))
    config.parallel_config.pipeline_parallel_size = 2
    with pytest.raises(AdaptationError, match="pipeline"):
        settle(config)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"image_token_id": 7, "vision_config": object()}, 7),
        ({"image_token_index": 8, "vision_config": object()}, 8),
        ({"img_context_token_id": 9, "vision_config": object()}, 9),
        ({"vision_config": SimpleNamespace(image_token_id=10)}, 10),
        ({"vision_config": object()}, -1),
    ],
)
def test_the_image_token_is_readable_under_every_name(target, expected) -> None:
    config = vllm_config(nested(2, 4, 5), **target)
    settle(config)
    hf = config.model_config.hf_config
    assert (hf.image_token_index, hf.media_placeholder_token_id, hf.image_token_id) == (expected,) * 3


def test_other_methods_are_left_alone() -> None:
    config = vllm_config(nested(1, 3, 6))
    config.speculative_config.method = "ngram"
    settle(config)
    assert runner_ids(config)[0] == (1, 3, 6)
    settle(SimpleNamespace(speculative_config=None))
