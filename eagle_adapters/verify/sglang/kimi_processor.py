"""The processor of a tiny Kimi-K2.5 checkpoint, with the interface of the published one; copied into the checkpoint.

SGLang's own processor for the class asks the checkpoint's processor for its media settings and lets it lay pictures
out (sglang 0.5.23, srt/multimodal/processors/kimi_k25.py); the layout here is that of `transformers`' image processor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from transformers.models.kimi_k25.image_processing_kimi_k25 import Kimi_K25ImageProcessor

MERGE = 2
"""Patches that become one token, along either side."""

SETTINGS: dict[str, Any] = {
    "patch_size": 14,
    "merge_kernel_size": MERGE,
    "in_patch_limit": 16384,
    "patch_limit_on_one_side": 512,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


class MediaProcessor:
    """Lays pictures out, and counts the tokens they stand for."""

    media_proc_cfg = SETTINGS

    def __init__(self) -> None:
        self._layout = Kimi_K25ImageProcessor(image_mean=SETTINGS["image_mean"], image_std=SETTINGS["image_std"])

    def lay_out(self, images: list[Any]) -> Any:
        """Patches [patches, 3, 14, 14] and grids [images, 3]."""
        return self._layout(images, return_tensors="pt")

    def media_tokens_calculator(self, media: dict[str, Any]) -> int:
        """How many tokens a picture stands for."""
        grid = self.lay_out([media["image"]])["image_grid_thw"][0]
        return int(grid[1] * grid[2]) // MERGE**2


class KimiProcessor:
    """What `AutoProcessor.from_pretrained(..., trust_remote_code=True)` gives."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.media_processor = self.image_processor = MediaProcessor()

    @classmethod
    def register_for_auto_class(cls) -> None:
        """Nothing: it is never saved again."""

    @classmethod
    def from_pretrained(cls, folder: str | Path, **kwargs: Any) -> KimiProcessor:
        """The processor of the checkpoint in `folder`."""
        return cls(AutoTokenizer.from_pretrained(folder))

    def __call__(self, text: list[str], medias: list[dict[str, Any]] | None = None, **kwargs: Any) -> dict[str, Any]:
        """Token ids [1, tokens], and the pictures laid out."""
        out: dict[str, Any] = {"input_ids": self.tokenizer(text, return_tensors="pt")["input_ids"]}
        if medias:
            laid_out = self.media_processor.lay_out([media["image"] for media in medias])
            out |= {"pixel_values": laid_out["pixel_values"], "grid_thws": laid_out["image_grid_thw"]}
        return out
