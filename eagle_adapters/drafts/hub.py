"""Checkpoints by hub name: the config and the tensor headers, without downloading the weights (extra `hub`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from eagle_adapters.drafts.documents import read_config, refusal
from eagle_adapters.drafts.header import TensorInfo

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def is_name(source: str | Path) -> bool:
    """Whether `source` is a hub name `owner/name` and nothing on this machine."""
    text = source if isinstance(source, str) else ""
    return _NAME.fullmatch(text) is not None and not text.endswith(".json") and not Path(text).exists()


def fetch(name: str) -> tuple[dict[str, Any], list[TensorInfo]]:
    """The config.json and the tensor headers of a hub checkpoint; values stay out of reach (`TensorInfo.file` None).

    Raises:
        DataError: EA704, `huggingface_hub` is not installed or the hub does not answer; EA700 as `read_config`.
    """
    try:
        from huggingface_hub import get_safetensors_metadata, hf_hub_download
        from huggingface_hub.errors import NotASafetensorsRepoError
    except ImportError as error:
        raise refusal(
            "EA704",
            f"{name} is a hub name, and huggingface_hub is not installed",
            name,
            found=str(error),
            next_step="pip install 'eagle-adapters[hub]', or give a local folder",
        ) from error
    try:
        config = read_config(Path(hf_hub_download(name, "config.json")))
        files = get_safetensors_metadata(name).files_metadata
    except NotASafetensorsRepoError:
        return config, []
    except OSError as error:
        # every error of the hub client is an OSError: no network, no such name, no access
        raise refusal("EA704", f"{name} cannot be fetched from the hub", name, found=str(error)[:200]) from error
    return config, [
        TensorInfo(tensor, info.dtype, tuple(info.shape), None, *info.data_offsets)
        for file in files.values()
        for tensor, info in file.tensors.items()
    ]
