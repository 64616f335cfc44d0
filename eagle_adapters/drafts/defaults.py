"""Fields that a target's config leaves to the defaults of its `model_type` (the LLaVA 1.5 checkpoints do)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def complete_config(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The config with what it leaves out, from the config class that `transformers` has for its `model_type`.

    None when it names no type, or none that the installed `transformers` knows, or when that is not installed.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        return None
    try:
        known = importlib.import_module("transformers").CONFIG_MAPPING
    except ImportError:
        return None
    if kind not in known:
        return None
    defaults: dict[str, Any] = known[kind]().to_dict()
    return {**defaults, **config}
