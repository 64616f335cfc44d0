"""Small random checkpoints of any architecture `transformers` knows, in the dialect that vLLM reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eagle_adapters.testing.tiny import build_tiny

State = dict[str, Any]
Dialect = Callable[[dict[str, Any], State], State]


def save_checkpoint(config: Mapping[str, Any], folder: Path, seed: int = 0) -> Any:
    """Write a checkpoint that vLLM loads, and give the `transformers` model it was made from.

    Args:
        config: a whole `config.json`, as in `adapters/*/tiny.json`.
        folder: where `config.json` and `model.safetensors` go; made if it is not there.
        seed: of the weights.
    """
    from safetensors.torch import load_file, save_file

    model = build_tiny(config, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text("utf-8"))
    written["architectures"] = list(config["architectures"])
    state = load_file(folder / "model.safetensors")
    dialect = DIALECTS.get(str(config["model_type"]))
    if dialect is not None:
        state = dialect(written, state)
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
    written["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(written, indent=1), "utf-8")
    (folder / "generation_config.json").unlink(missing_ok=True)
    return model


def _kimi_k25(config: dict[str, Any], state: State) -> State:
    """vLLM reads the published names: `KimiK25ForConditionalGeneration`, no `model.` in front."""
    config["architectures"] = ["KimiK25ForConditionalGeneration"]
    return {
        # transformers 5.19.0 renames the vision tower's `layers` on saving and hits the decoder's as well
        name.removeprefix("model.").replace("language_model.model.blocks.", "language_model.model.layers."): tensor
        for name, tensor in state.items()
    }


DIALECTS: dict[str, Dialect] = {"kimi_k25": _kimi_k25}
"""model_type -> what has to be changed in the files that `transformers` writes."""
