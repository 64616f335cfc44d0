"""What a draft's weight files hold, without loading them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Shapes = Mapping[str, tuple[int, ...]]
"""Tensor name without `model.` -> shape."""


def shapes(folder: Path) -> Shapes:
    """The shapes in a local checkpoint; none for a name on the hub, and the engine says what is wrong with a file."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        try:
            with safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - a safe_open handle is no mapping
                    found[name.removeprefix("model.")] = tuple(opened.get_slice(name).get_shape())
        except (SafetensorError, OSError):
            return {}
    return found
