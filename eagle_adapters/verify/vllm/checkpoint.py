"""Small random checkpoints of any architecture `transformers` knows, in the dialect that vLLM reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eagle_adapters.tiny import build_tiny

State = dict[str, Any]
Dialect = Callable[[dict[str, Any], State], State]


def save_checkpoint(config: Mapping[str, Any], folder: Path, seed: int = 0) -> Any:
    """Write a checkpoint that vLLM loads, and give the `transformers` model it was made from.

    Args:
        config: a whole `config.json`, as in `adapters/*/tiny.json`.
        folder: where `config.json` and `model.safetensors` go; made if it is not there.
        seed: of the weights.
    """
    model = build_tiny(config, seed=seed)
    text = model.config.get_text_config()
    if text.tie_word_embeddings or text.model_type.startswith("gemma"):
        # An embedding that is also the head, or is scaled up, makes a random target repeat one token for ever.
        embedding = model.get_input_embeddings().weight
        embedding.data.mul_(embedding.shape[-1] ** -0.5)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text("utf-8"))
    written["architectures"] = list(config["architectures"])
    (folder / "config.json").write_text(json.dumps(written, indent=1), "utf-8")
    translate(folder)
    return model


def translate(folder: Path) -> None:
    """Rewrite a checkpoint as `save_pretrained` wrote it into the dialect that vLLM reads, in place."""
    from safetensors.torch import load_file, save_file

    config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    dialect = DIALECTS.get(str(config["model_type"]))
    weights = folder / "model.safetensors"
    if dialect is not None:
        state = dialect(config, load_file(weights))
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, weights)
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    (folder / "generation_config.json").unlink(missing_ok=True)


def modalities(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of input beside text that a config has a tower for."""
    if "vision_config" not in config:
        return ()
    video = any(name in config for name in ("video_token_id", "video_token_index"))
    chunk = config["model_type"] == "kimi_k25"
    return ("image", *(("video",) if video else ()), *(("vision_chunk",) if chunk else ()))


def picture_modality(config: Mapping[str, Any]) -> str:
    """What vLLM calls a picture."""
    return "vision_chunk" if config["model_type"] == "kimi_k25" else "image"


def _kimi_k25(config: dict[str, Any], state: State) -> State:
    """VLLM reads the published names and fields: `KimiK25ForConditionalGeneration`, no `model.` in front."""
    config["architectures"] = ["KimiK25ForConditionalGeneration"]
    # what transformers' class does without saying so, and vLLM's asks of the config
    config["text_config"] = {"topk_method": "noaux_tc", "scoring_func": "sigmoid"} | config["text_config"]
    # transformers 5.19.0 renames parts of the vision tower on saving and hits its patches and the decoder as well
    wrong = {
        "vision_tower.encoder.patch_embed.": "vision_tower.patch_embed.",
        "language_model.model.blocks.": "language_model.model.layers.",
    }
    return {_renamed(name.removeprefix("model."), wrong): tensor for name, tensor in state.items()}


def _phimoe(config: dict[str, Any], state: State) -> State:
    """The published class name, and a bias of the head: vLLM loads one and never adds it (0.32.0, models/phimoe.py)."""
    config["architectures"] = ["PhiMoEForCausalLM"]
    head = state["lm_head.weight"]
    return {"lm_head.bias": head.new_zeros(head.shape[0]), **state}


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    found = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
    return prefixes.get(found, "") + name.removeprefix(found)


DIALECTS: dict[str, Dialect] = {"kimi_k25": _kimi_k25, "phimoe": _phimoe}
"""model_type -> what has to be changed in the files that `transformers` writes."""
