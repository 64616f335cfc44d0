"""Read what the observer wrote, back into the states of one sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def observed_states(folder: Path, tokens: Sequence[int], rank: int = 0, request: int = 0) -> Mapping[int, Any]:
    """Position -> the states handed to the drafter for it, read from what an `Observer` wrote for one request.

    A position of a rejected proposal is computed again later, so the last record of a position counts; positions whose
    token is not the sequence's are left out.

    Args:
        folder: what the observer was given.
        tokens: the request's prompt and what was generated after it.
        rank: which worker.
        request: which request of the engine, counted from 0 on.
    """
    from safetensors.torch import load_file

    found: dict[int, Any] = {}
    for file in sorted(folder.glob(f"rank{rank}-*-{request}.safetensors")):
        record = load_file(file)
        positions = record["positions"]
        if positions.dim() > 1:  # M-RoPE: one row for each axis, equal for text
            positions = positions[0]
        for position, token, state in zip(positions.tolist(), record["tokens"].tolist(), record["states"], strict=True):
            if position < len(tokens) and token == tokens[position]:
                found[position] = state
    return found
