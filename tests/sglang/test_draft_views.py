"""What this library says SGLang makes of a draft's layer ids is what SGLang's own setters make of them.

The setters are taken from the installed sources one by one and run on a stand-in, so no model is built.
"""

from __future__ import annotations

import ast
import json
import typing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagle_adapters.drafts.engine import DRAFT_CLASSES, SGLANG, views
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.drafts.target import read_target
from eagle_adapters.testing import checkpoints as small

SETTER = "set_eagle3_layers_to_capture"
CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "apertus": "ApertusForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "gemma3_causal": "Gemma3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}
IDS: list[list[int] | None] = [None, [1, 15, 28], [2, 16, 29], [4, 20, 25], [5, 16, 32], [0, 1, 2]]


def models() -> Path:
    spec = find_spec("sglang")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "srt" / "models"


def setter(module: str, owner: str) -> Any:
    tree = ast.parse((models() / f"{module}.py").read_text())
    cls = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    function = next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == SETTER)
    # one rank: it is the last one
    one = SimpleNamespace(pp_group=SimpleNamespace(is_last_rank=True))
    scope: dict[str, Any] = {"Optional": typing.Optional, "List": list, "get_parallel": lambda: one}
    exec(compile(ast.Module([function], []), f"{module}.py", "exec"), scope)
    return scope[SETTER]


def captured(module: str, owner: str, ids: list[int] | None) -> list[int]:
    """The boundaries after the setter: a layer in the list is recorded before it runs."""
    config = SimpleNamespace(num_hidden_layers=32)
    inner = SimpleNamespace(layers_to_capture=[], config=config)
    inner.set_eagle3_layers_to_capture = lambda layers: setattr(inner, "layers_to_capture", list(layers))
    outer = SimpleNamespace(pp_group=SimpleNamespace(is_last_rank=True), config=config, model=inner)
    setter(module, owner)(outer, ids)
    return list(inner.layers_to_capture)


@pytest.mark.parametrize("ids", IDS, ids=str)
@pytest.mark.parametrize("module", CLASSES)
def test_the_setters_shift_as_said(module: str, ids: list[int] | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(small.llama_config(ids)))
    (tmp_path / "target.json").write_text(json.dumps(small.target_config(CLASSES[module])))
    (view,) = views(SGLANG, read_draft(tmp_path / "config.json"), read_target(tmp_path / "target.json"))
    found = captured(module, CLASSES[module], ids)
    if max(found) > 32:
        assert view.boundaries is None
    else:
        assert [int(b) for b in view.boundaries or ()] == found


def test_the_named_draft_classes_exist() -> None:
    defined = {
        node.name
        for path in models().glob("*_eagle3.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    assert DRAFT_CLASSES[SGLANG] <= defined
