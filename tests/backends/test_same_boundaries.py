"""One draft, two engines: vLLM and SGLang settle its layer ids to the same boundaries, or both refuse them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eagle_adapters.backends.sglang.request import CONVENTION_ENV, read_boundaries, read_request
from eagle_adapters.backends.vllm.request import CONVENTION_ENV as VLLM_CONVENTION_ENV
from eagle_adapters.backends.vllm.request import settle, settled
from eagle_adapters.errors import BoundaryError

IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONVENTION_ENV, raising=False)


def in_vllm(draft: dict[str, Any], layers: int, name: str) -> list[int]:
    """What vLLM is told to capture, from the parts of a `VllmConfig` that are read on the way."""
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(
            method="eagle3", draft_model_config=SimpleNamespace(hf_config=SimpleNamespace(**draft), model=name)
        ),
        model_config=SimpleNamespace(
            hf_config=SimpleNamespace(),
            get_total_num_hidden_layers=lambda: layers,
            get_hidden_size=lambda: 64,
            is_encoder_decoder=False,
        ),
        parallel_config=SimpleNamespace(pipeline_parallel_size=1, tensor_parallel_size=1, enable_dbo=False),
        use_v2_model_runner=False,
    )
    settle(config)
    return settled(config)


def in_sglang(draft: dict[str, Any], layers: int, name: str) -> list[int]:
    """What SGLang's target is told to capture."""
    return [int(b) for b in read_boundaries(read_request(draft, name), layers).require()]


def top(*ids: int) -> dict[str, Any]:
    return {IDS: list(ids)}


def nested(*ids: int) -> dict[str, Any]:
    return {"eagle_config": {IDS: list(ids)}}


@pytest.mark.parametrize("place", [top, nested])
@pytest.mark.parametrize("ids", [(2, 30, 58), (1, 29, 57)], ids=["boundary", "layer-output"])
def test_both_ways_to_number_the_same_layers_are_the_same_boundaries_in_both_engines(place, ids) -> None:
    draft = place(*ids)
    assert in_vllm(draft, 61, "/a/draft") == in_sglang(draft, 61, "/a/draft") == [2, 30, 58]


@pytest.mark.parametrize(
    ("draft", "layers", "boundaries"),
    [
        ({}, 61, [2, 30, 58]),
        (top(2, 4, 5), 8, [2, 4, 5]),
        (top(1, 3, 4), 8, [2, 4, 5]),
        (top(0, 4, 8), 8, [0, 4, 8]),
        (nested(24, 30, 36), 36, [24, 30, 36]),
    ],
)
def test_every_other_decided_reading_too(draft, layers, boundaries) -> None:
    assert in_vllm(draft, layers, "/a/draft") == in_sglang(draft, layers, "/a/draft") == boundaries


@pytest.mark.parametrize(("convention", "boundaries"), [("boundary", [4, 20, 40]), ("layer_output", [5, 21, 41])])
def test_one_declaration_decides_for_both(convention, boundaries, monkeypatch) -> None:
    assert CONVENTION_ENV == VLLM_CONVENTION_ENV
    monkeypatch.setenv(CONVENTION_ENV, convention)
    assert in_vllm(top(4, 20, 40), 48, "/a/draft") == in_sglang(top(4, 20, 40), 48, "/a/draft") == boundaries


@pytest.mark.parametrize("settled_in", [in_vllm, in_sglang])
@pytest.mark.parametrize(
    ("draft", "code"), [(top(4, 20, 40), "EA005"), (top(2, 2, 5), "EA002"), (top(2, 4, 99), "EA001")]
)
def test_both_refuse_the_same(settled_in, draft, code) -> None:
    with pytest.raises(BoundaryError) as caught:
        settled_in(draft, 48, "/a/draft")
    assert caught.value.code == code
