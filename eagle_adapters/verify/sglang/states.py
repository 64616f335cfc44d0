"""Read what the observer wrote, back into one tensor of states for each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def observed_states(folder: Path, prompt: Sequence[int]) -> dict[int, Any]:
    """Position -> the states [K * hidden] that the draft was handed, for the sequence that began with `prompt`.

    Args:
        folder: what the observer was given, or the folder of one rank in it.
        prompt: token ids, one for each token that a picture stands for.
    """
    from safetensors.torch import load_file

    found: dict[int, Any] = {}
    for file in sorted(folder.rglob("*.safetensors")):
        record = load_file(file)
        if record["prompt"].tolist() != list(prompt):
            continue
        start = int(record["start"])
        found.update((start + offset, row) for offset, row in enumerate(record["states"]))
    return found
