"""What every serving engine needs before a small checkpoint's target can be shown a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any


def save_tokenizer(folder: Path, vocabulary: int, image_token: int, placeholder: str) -> None:
    """Write a tokenizer of one word for each id into a checkpoint: `<7>` for 7, `placeholder` for the image token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"<{i}>": i for i in range(vocabulary) if i != image_token} | {placeholder: image_token}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<0>").save_pretrained(folder)


def save_picture(picture: Any, path: Path) -> Path:
    """Write a picture [3, H, W] in 0..1 as a PNG file: exact when its values are multiples of 1/255."""
    import torch
    from PIL import Image

    Image.fromarray((picture.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()).save(path)
    return path


def fold_placeholders(token_ids: Sequence[int], image_token: int) -> list[int]:
    """The ids with one placeholder for each picture, which is what an engine expects and expands."""
    return [id_ for token, run in groupby(token_ids) for id_ in ([token] if token == image_token else run)]
