"""Give a small checkpoint what SGLang needs before it takes a picture: a tokenizer, and the checkpoint's own processor.

The picture is then handed over as a file, as a user does, and SGLang's own code for the class reads it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

PROCESSORS = {"kimi_k25": ("kimi_processor", "KimiProcessor", "<|media_pad|>")}
"""model_type -> module beside this one, class in it, and the placeholder by which SGLang knows the picture."""

OPTIONS = {"enable_multimodal": True, "trust_remote_code": True}
"""What an engine needs to be told when a prompt has a picture."""


def add_processor(folder: Path) -> None:
    """Write a tokenizer of one word for each id, and the processor, into a checkpoint in SGLang's dialect."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    config = json.loads((folder / "config.json").read_text("utf-8"))
    module, name, placeholder = PROCESSORS[config["model_type"]]
    words = {f"<{i}>": i for i in range(config["text_config"]["vocab_size"]) if i != config["image_token_id"]}
    words[placeholder] = config["image_token_id"]
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<0>").save_pretrained(folder)
    shutil.copy(Path(__file__).with_name(f"{module}.py"), folder)
    auto_map = {"AutoProcessor": f"{module}.{name}"}
    (folder / "preprocessor_config.json").write_text(json.dumps({"auto_map": auto_map}), "utf-8")


def save_picture(picture: Any, path: Path) -> Path:
    """Write a picture [3, H, W] in 0..1 as a PNG file."""
    import torch
    from PIL import Image

    Image.fromarray((picture.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()).save(path)
    return path


def fold_placeholders(token_ids: Sequence[int], image_token: int) -> list[int]:
    """The ids with one placeholder for each picture, which is what SGLang expects and expands."""
    return [id_ for token, run in groupby(token_ids) for id_ in ([token] if token == image_token else run)]
