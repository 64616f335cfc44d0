"""What a target's states and greedy tokens are, computed by `transformers` in float32, independent of any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def decoder_layers(model: Any) -> Any:
    """The decoder's list of layers: the longest list of modules with an attention that is not a vision tower's."""
    from torch import nn

    found = [
        (len(module), name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and name.rsplit(".", 1)[-1] in ("layers", "h", "blocks")
        and not any(part in name for part in ("vision", "visual", "audio", "experts", "image"))
    ]
    return max(found, key=lambda entry: entry[0])[2]


def boundary_states(model: Any, ids: Sequence[int], **inputs: Any) -> Any:
    """Boundaries 0..N of one sequence, shape [N + 1, T, H]: the input of the first layer and the output of each."""
    import torch

    layers = decoder_layers(model)
    states: list[Any] = []

    def first(module: Any, args: Any, kwargs: Any) -> None:
        states.append((args[0] if args else kwargs["hidden_states"]).detach().clone())

    def after(module: Any, args: Any, output: Any) -> None:
        states.append((output[0] if isinstance(output, tuple) else output).detach().clone())

    handles = [layers[0].register_forward_pre_hook(first, with_kwargs=True)]
    handles += [layer.register_forward_hook(after) for layer in layers]
    try:
        with torch.no_grad():
            model(input_ids=torch.tensor([list(ids)]), use_cache=False, **inputs)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack([state.reshape(-1, state.shape[-1]) for state in states])


def greedy(model: Any, prompt: Sequence[int], count: int, **inputs: Any) -> list[int]:
    """`count` greedy tokens after `prompt`, recomputed from scratch each time (no cache that could be wrong)."""
    import torch

    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([ids]), use_cache=False, **inputs).logits
            ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt) :]


def observed_states(folder: Path, tokens: Sequence[int], rank: int = 0) -> Mapping[int, Any]:
    """Position -> the states handed to the drafter for it, read from what an `Observer` wrote for one sequence.

    A position of a rejected proposal is computed again later, so the last record of a position counts; positions whose
    token is not the sequence's are left out.
    """
    from safetensors.torch import load_file

    found: dict[int, Any] = {}
    for file in sorted(folder.glob(f"rank{rank}-*.safetensors")):
        record = load_file(file)
        positions = record["positions"]
        if positions.dim() > 1:  # M-RoPE: one row for each axis, equal for text
            positions = positions[0]
        for position, token, state in zip(positions.tolist(), record["tokens"].tolist(), record["states"], strict=True):
            if position < len(tokens) and token == tokens[position]:
                found[position] = state
    return found
