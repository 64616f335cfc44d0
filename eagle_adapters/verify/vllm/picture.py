"""Give a small checkpoint what vLLM needs before it takes a picture: a tokenizer, and the fields of its processor.

The picture is then laid out by vLLM's own code for the class, as it is for a user.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eagle_adapters.verify.pictures import save_tokenizer

Config = Mapping[str, Any]


def add_processor(folder: Path) -> None:
    """Write a tokenizer and a processor's config into a checkpoint that brings none."""
    if (folder / "preprocessor_config.json").is_file():
        return
    config = json.loads((folder / "config.json").read_text("utf-8"))
    placeholder, fields = PROCESSORS[config["model_type"]]
    save_tokenizer(folder, config["text_config"]["vocab_size"], config["image_token_id"], placeholder)
    (folder / "preprocessor_config.json").write_text(json.dumps(fields(config), indent=1), "utf-8")


def shown(file: str, modality: str) -> dict[str, list[Any]]:
    """A picture as a prompt's `multi_modal_data`."""
    from PIL import Image

    with Image.open(file) as opened:
        picture: Any = opened.convert("RGB")
    if modality == "vision_chunk":
        picture = {"type": "image", "image": picture, "uuid": None}
    return {modality: [picture]}


def _kimi_k25(config: Config) -> dict[str, Any]:
    """Limits that fit a small context; a picture within them keeps its size."""
    vision = config["vision_config"]
    settings = {
        "patch_size": vision["patch_size"],
        "merge_kernel_size": vision["merge_kernel_size"],
        "temporal_merge_kernel_size": 4,
        "in_patch_limit": 64,
        "in_patch_limit_each_frame": 64,
        "in_patch_limit_video": 64,
        "patch_limit_on_one_side": 16,
        "fixed_output_tokens": None,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    return {"media_proc_cfg": settings}


PROCESSORS: dict[str, tuple[str, Callable[[Config], dict[str, Any]]]] = {"kimi_k25": ("<|media_pad|>", _kimi_k25)}
"""model_type -> the placeholder by which vLLM knows the picture, and the fields of `preprocessor_config.json`."""
