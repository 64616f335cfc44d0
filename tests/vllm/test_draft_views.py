"""What this library says vLLM makes of a draft's layer ids is what vLLM's own code makes of them, in both runners."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoConfig
from vllm.transformers_utils.configs.eagle import EAGLEConfig
from vllm.transformers_utils.configs.speculators import SpeculatorsConfig
from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import get_eagle3_aux_layers_from_config
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from eagle_adapters.drafts.engine import DRAFT_CLASSES, VLLM, views
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.drafts.target import read_target
from eagle_adapters.testing import checkpoints as small

TOP = "eagle_aux_hidden_state_layer_ids"

DRAFTS: dict[str, dict[str, Any]] = {
    "none": small.llama_config(),
    "nested": small.llama_config([3, 16, 28]),
    "top": small.llama_config(**{TOP: [3, 16, 28]}),
    "both": small.llama_config([1, 15, 28], **{TOP: [2, 16, 29]}),
    "empty": small.llama_config([], **{TOP: []}),
    "four at the top": small.llama_config(**{TOP: [2, 10, 20, 32]}),
    "four, counted": small.llama_config(**{TOP: [2, 10, 20, 32]}, num_aux_hidden_states=4),
    "nested layer_ids": small.llama_config(eagle_config={"layer_ids": [5, 6, 7]}),
    "unordered": small.llama_config(**{TOP: [29, 2, 16]}),
    "speculators": small.speculators_config([3, 16, 28]),
    "speculators without ids": small.speculators_config(),
}


def engine_config(folder: Path, document: dict[str, Any]) -> Any:
    if "speculators_model_type" in document:
        return SpeculatorsConfig.from_pretrained(str(folder))
    return EAGLEConfig(AutoConfig.from_pretrained(str(folder)), method="eagle3", model_type="eagle")


@pytest.mark.parametrize("name", DRAFTS)
def test_both_runners_read_the_ids_as_said(name: str, tmp_path: Path) -> None:
    document = DRAFTS[name]
    (tmp_path / "config.json").write_text(json.dumps(document))
    (tmp_path / "target.json").write_text(json.dumps(small.target_config()))
    v2, v1 = views(VLLM, read_draft(tmp_path / "config.json"), read_target(tmp_path / "target.json"))

    config = engine_config(tmp_path, document)
    speculative = SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=config))
    runner = SimpleNamespace(speculative_config=speculative)
    assert (None if v2.ids is None else v2.ids.value) == get_eagle3_aux_layers_from_config(speculative)
    assert (None if v1.ids is None else v1.ids.value) == GPUModelRunner._get_eagle3_aux_layers_from_config(runner)

    # the width that models/llama_eagle3.py builds
    nested = (getattr(config, "eagle_config", None) or {}).get(TOP)
    width = getattr(config, "num_aux_hidden_states", None) or (len(nested) if nested else 3)
    assert {v1.num_aux, v2.num_aux} == {width}


@pytest.mark.parametrize("name", sorted(DRAFT_CLASSES[VLLM]))
def test_the_named_draft_classes_exist(name: str) -> None:
    from vllm.model_executor.models import ModelRegistry

    made = name if name.startswith("Eagle3") or name.endswith("Eagle3") else f"Eagle3{name}"
    assert made in ModelRegistry.get_supported_archs()
