"""Give a small checkpoint what SGLang needs before it takes a picture: a tokenizer, and the checkpoint's own processor.

The picture is then handed over as a file, as a user does, and SGLang's own code for the class reads it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from eagle_adapters.verify.pictures import save_tokenizer

PROCESSORS = {"kimi_k25": ("kimi_processor", "KimiProcessor", "<|media_pad|>")}
"""model_type -> module beside this one, class in it, and the placeholder by which SGLang knows the picture."""

OPTIONS = {"enable_multimodal": True, "trust_remote_code": True}
"""What an engine needs to be told when a prompt has a picture."""


def add_processor(folder: Path) -> None:
    """Write a tokenizer and the processor into a checkpoint in SGLang's dialect."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    module, name, placeholder = PROCESSORS[config["model_type"]]
    save_tokenizer(folder, config["text_config"]["vocab_size"], config["image_token_id"], placeholder)
    shutil.copy(Path(__file__).with_name(f"{module}.py"), folder)
    auto_map = {"AutoProcessor": f"{module}.{name}"}
    (folder / "preprocessor_config.json").write_text(json.dumps({"auto_map": auto_map}), "utf-8")
