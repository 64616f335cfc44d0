"""Checkpoint folders for the tests of drafts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from eagle_adapters.testing.checkpoints import Tensors, write_safetensors

Make = Callable[..., Path]


@pytest.fixture
def make_draft(tmp_path: Path) -> Make:
    """Writes a draft folder: `make_draft(config, tensors, metadata=..., name=...)`."""

    def make(
        config: dict[str, Any],
        tensors: Tensors | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        name: str = "draft",
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        if tensors is not None:
            write_safetensors(folder / "model.safetensors", tensors, metadata)
        return folder

    return make


@pytest.fixture
def make_target(tmp_path: Path) -> Make:
    """Writes a target's config.json, and weights when given."""

    def make(config: dict[str, Any], tensors: Tensors | None = None) -> Path:
        folder = tmp_path / "target"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        if tensors is None:
            return folder / "config.json"
        write_safetensors(folder / "model.safetensors", tensors)
        return folder

    return make
