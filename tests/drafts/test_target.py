"""The language model is found in every way that targets nest it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagle_adapters.boundaries import Convention
from eagle_adapters.drafts.check import check_draft
from eagle_adapters.drafts.support import Status, Support, engine_support
from eagle_adapters.drafts.target import TargetSpec, read_target
from eagle_adapters.errors import DataError
from eagle_adapters.testing import checkpoints as small

Make = Callable[..., Path]

TEXT = {"hidden_size": 64, "num_hidden_layers": 40, "vocab_size": 1000, "architectures": ["Inner"]}
VISION = {"hidden_size": 99, "num_hidden_layers": 9}

NESTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({**TEXT}, "config.json"),
    "text_config": ({"text_config": TEXT, "vision_config": VISION}, "text_config"),
    "language_config": ({"language_config": TEXT, "vision_config": VISION, "hidden_size": 5}, "language_config"),
    "llm_config": ({"llm_config": TEXT, "vision_config": VISION}, "llm_config"),
    "thinker": (
        {"thinker_config": {"text_config": TEXT, "audio_config": VISION}, "talker_config": {"text_config": VISION}},
        "thinker_config.text_config",
    ),
    "flat with a tower": ({**TEXT, "vision_config": VISION}, "config.json"),
    "repeated at the top": ({**TEXT, "num_hidden_layers": 3, "text_config": TEXT}, "text_config"),
    "gpt names": ({"n_embd": 64, "n_layer": 40, "vocab_size": 1000}, "config.json"),
}


@pytest.mark.parametrize("name", NESTINGS)
def test_every_nesting_is_found(name: str, make_target: Make) -> None:
    config, path = NESTINGS[name]
    target = read_target(make_target(config))
    assert (target.text_path, target.num_layers, target.hidden_size, target.vocab_size) == (path, 40, 64, 1000)
    assert target.multimodal is (name not in ("plain", "gpt names"))


@pytest.mark.parametrize("config", [{}, {"vision_config": VISION}, {"text_config": {"model_type": "no such"}}])
def test_a_config_without_a_language_model_is_refused(config: dict[str, Any], make_target: Make) -> None:
    with pytest.raises(DataError, match="EA774"):
        read_target(make_target(config))


LLAVA_TEXT = {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}
"""The fields of LLaVA 1.5 7B's language model: its size is that of transformers' LlamaConfig."""


def test_a_size_left_to_the_defaults_is_completed(make_target: Make) -> None:
    target = read_target(make_target({"text_config": LLAVA_TEXT, "vision_config": VISION}))
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (32, 4096, 32064)
    assert target.rope.max_position == 4096
    assert target.text_path == "text_config, with the defaults of transformers for llama"


def test_a_size_left_to_the_defaults_needs_transformers(make_target: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(DataError, match="EA774") as caught:
        read_target(make_target({"text_config": LLAVA_TEXT}))
    assert "install transformers" in str(caught.value.diagnostics[0].next_step)


def test_impossible_values_are_refused_together(make_target: Make) -> None:
    config = {"hidden_size": -1, "num_hidden_layers": "many", "vocab_size": 1.5, "max_position_embeddings": True}
    with pytest.raises(DataError) as caught:
        read_target(make_target(config))
    assert {d.code for d in caught.value.diagnostics} == {"EA703"}
    assert len(caught.value.diagnostics) >= 4


def test_media_tokens_are_found_wherever_they_stand(make_target: Make) -> None:
    config = {
        "text_config": TEXT,
        "vision_config": VISION | {"image_token_id": 7},
        "media_placeholder_token_id": 8,
        "video_token_index": 9,
        "talker_config": {"image_token_id": 10},
        "eos_token_id": 11,
    }
    found = read_target(make_target(config)).media_tokens
    assert found == {"vision_config.image_token_id": 7, "media_placeholder_token_id": 8, "video_token_index": 9}


def test_infinity_is_accepted_and_nan_is_not(make_target: Make, tmp_path: Path) -> None:
    """Published hybrid models have `time_step_limit: [0.0, Infinity]`."""
    path = tmp_path / "infinity.json"
    path.write_text(json.dumps({**TEXT, "time_step_limit": [0.0, float("inf")]}))
    assert read_target(path).num_layers == 40
    path.write_text(json.dumps({**TEXT, "time_step_limit": [0.0, float("nan")]}))
    with pytest.raises(DataError, match="EA700"):
        read_target(path)


def test_only_the_files_of_embedding_and_head_are_opened(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"text_config": TEXT, "tie_word_embeddings": True}))
    small.write_safetensors(
        folder / "one.safetensors", {"language_model.model.embed_tokens.weight": small.trained((1000, 64), 1)}
    )
    (folder / "two.safetensors").write_bytes(b"not weights at all")
    weight_map = {
        "language_model.model.embed_tokens.weight": "one.safetensors",
        "vision_tower.embed_tokens.weight": "one.safetensors",
        "language_model.model.layers.0.mlp.up_proj.weight": "two.safetensors",
        "language_model.lm_head.weight": "missing.safetensors",
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    target = read_target(folder)
    assert target.embedding is not None
    assert target.embedding.name == "language_model.model.embed_tokens.weight"
    assert target.head is None
    assert target.tied


def support_of(architecture: str, engine: str, make_target: Make) -> Support:
    return engine_support(read_target(make_target(small.target_config(architecture))), engine)


@pytest.mark.parametrize(
    ("architecture", "engine", "status", "known"),
    [
        ("LlamaForCausalLM", "vllm", Status.OK, True),
        ("KimiK25ForConditionalGeneration", "sglang", Status.OK, True),
        ("Qwen3VLForConditionalGeneration", "vllm", Status.OK, True),
        # as transformers spells it; no engine does
        ("Kimi_K25ForConditionalGeneration", "vllm", Status.ADAPTER, False),
        # the hook without the embedding and the head
        ("Qwen2MoeForCausalLM", "sglang", Status.ADAPTER, False),
        ("InternVLChatModel", "sglang", Status.ADAPTER, False),
        # claims it over an inner model that lacks it
        ("Exaone4_5_ForConditionalGeneration", "vllm", Status.ADAPTER, False),
    ],
)
def test_support_of_known_and_unknown_classes(
    architecture: str, engine: str, status: Status, known: bool, make_target: Make
) -> None:
    found = support_of(architecture, engine, make_target)
    assert (found.status, found.known) == (status, known)
    assert found.reason


def test_another_spelling_of_a_class_is_said(make_draft: Make, make_target: Make) -> None:
    target = make_target(small.kimi_config(architectures=["Kimi_K25ForConditionalGeneration"]))
    verdict = check_draft(target, make_draft(small.llama_config([2, 30, 58]), small.llama_tensors()), "sglang")
    (finding,) = [f for f in verdict.findings if f.severity == "warning"]
    assert (finding.code, verdict.verdict) == ("EA773", Status.ADAPTER)
    assert '["KimiK25ForConditionalGeneration"]' in (finding.next_step or "")


def test_a_target_without_architectures_is_blocked(make_target: Make) -> None:
    target = read_target(make_target({"hidden_size": 32, "num_hidden_layers": 32}))
    assert engine_support(target, "vllm").status is Status.BLOCKED


def test_an_unknown_class_is_said_out_loud(make_draft: Make, make_target: Make) -> None:
    draft = make_draft(small.llama_config(), small.llama_tensors())
    verdict = check_draft(make_target(small.target_config("NobodysForCausalLM")), draft, "sglang")
    assert verdict.verdict is Status.ADAPTER
    assert [f.code for f in verdict.findings if f.severity == "warning"] == ["EA773"]
    assert not verdict.clean


def test_the_decision_can_be_taken_elsewhere(make_draft: Make, make_target: Make) -> None:
    draft = make_draft(small.llama_config(), small.llama_tensors())
    target = make_target(small.target_config())

    def refused(spec: TargetSpec, engine: str) -> Support:
        assert spec.num_layers == 32
        return Support(Status.BLOCKED, f"{engine} has no such class")

    verdict = check_draft(target, draft, "vllm", support=refused)
    assert (verdict.verdict, verdict.command) == (Status.BLOCKED, None)
    assert [f.code for f in verdict.findings if f.severity == "error"] == ["EA772"]


def test_one_engine_that_works_is_enough(make_draft: Make, make_target: Make) -> None:
    draft = make_draft(small.llama_config(), small.llama_tensors())

    def only_sglang(spec: TargetSpec, engine: str) -> Support:
        return Support(Status.OK if engine == "sglang" else Status.BLOCKED, "because")

    verdict = check_draft(make_target(small.target_config()), draft, support=only_sglang)
    assert verdict.verdict is Status.OK
    assert "sglang" in (verdict.command or "")
    assert verdict.clean


REGISTRY = """
version: 1
families: {}
drafts:
  zjxia/step-3.5-flash-eagle3-SpecForge-draft:
    {num_layers: 45, ids: [4, 20, 40], convention: layer_output, source: "https://example.org/card"}
"""


@pytest.mark.parametrize(
    "place",
    [
        "zjxia/step-3.5-flash-eagle3-SpecForge-draft",
        "models--zjxia--step-3.5-flash-eagle3-SpecForge-draft/snapshots/0123",
    ],
)
def test_the_registry_decides_for_a_known_checkpoint(
    place: str, make_draft: Make, make_target: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "registry.yaml").write_text(REGISTRY)
    monkeypatch.setenv("EAGLE_ADAPTERS_DATA", str(data))
    target = make_target(small.target_config(layers=45))
    draft = make_draft(small.llama_config([4, 20, 40]), small.llama_tensors(), name=place)
    verdict = check_draft(target, draft)
    assert (verdict.convention, verdict.source) == (Convention.LAYER_OUTPUT, "registry")
    other = make_draft(small.llama_config([4, 20, 41]), small.llama_tensors(), name=f"elsewhere/{place}")
    assert check_draft(target, other).source == "undecided"  # its ids are not those that were registered
