"""What a target's states and greedy tokens are, computed by `transformers` in float32, independent of any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Reference:
    """What `transformers` computes for one sequence.

    Attributes:
        tokens: the sequence: prompt and greedy continuation.
        states: boundaries 0..N, [N + 1, T, H].
        head_inputs: what the head is given, [T, H]: the last boundary after the final norm.
    """

    tokens: list[int]
    states: Any
    head_inputs: Any

    def captured(self, boundaries: Sequence[int]) -> Any:
        """The states at some boundaries side by side, as the drafter gets them: [T, K * H]."""
        import torch

        return torch.cat([self.states[boundary] for boundary in boundaries], dim=-1)


def reference(model: Any, prompt: Sequence[int], count: int, **inputs: Any) -> Reference:
    """The greedy continuation of `prompt` by `count` tokens, and the states of the whole."""
    import torch

    tokens = [*prompt, *greedy(model, prompt, count, **inputs)]
    layers = decoder_layers(model)
    states: list[Any] = []
    heads: list[Any] = []

    def first(module: Any, args: Any, kwargs: Any) -> None:
        states.append((args[0] if args else kwargs["hidden_states"]).detach().clone())

    def after(module: Any, args: Any, output: Any) -> None:
        states.append((output[0] if isinstance(output, tuple) else output).detach().clone())

    def before_head(module: Any, args: Any) -> None:
        heads.append(args[0].detach().clone())

    handles = [layers[0].register_forward_pre_hook(first, with_kwargs=True)]
    handles += [layer.register_forward_hook(after) for layer in layers]
    handles.append(model.get_output_embeddings().register_forward_pre_hook(before_head))
    try:
        with torch.no_grad():
            model(input_ids=torch.tensor([tokens]), use_cache=False, **inputs)
    finally:
        for handle in handles:
            handle.remove()
    stacked = torch.stack([state.reshape(-1, state.shape[-1]) for state in states])
    return Reference(tokens, stacked, heads[-1].reshape(-1, heads[-1].shape[-1]))


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


@dataclass(frozen=True, slots=True)
class Match:
    """How observed states compare with the reference at one boundary.

    Attributes:
        boundary: the boundary that was asked for.
        positions: how many positions were compared.
        error: the largest distance to the reference, relative to the reference's length.
        nearest: the boundary of the reference that is nearest over all positions.
        margin: how many times nearer the right boundary is than any other, at the worst position.
    """

    boundary: int
    positions: int
    error: float
    nearest: int
    margin: float


def match_states(observed: Mapping[int, Any], states: Any, boundaries: Sequence[int]) -> tuple[Match, ...]:
    """Compare what the drafter was handed with the reference, boundary by boundary.

    Args:
        observed: position -> states side by side [K * H].
        states: boundaries 0..N of the reference, [N + 1, T, H].
        boundaries: what the K states should be.
    """
    import torch

    positions = sorted(observed)
    width = states.shape[-1]
    rows = torch.stack([observed[position] for position in positions]).float()
    found = []
    for k, boundary in enumerate(boundaries):
        distances = torch.stack(
            [(rows[:, k * width : (k + 1) * width] - state[positions]).norm(dim=-1) for state in states]
        )
        own = distances[boundary]
        others = torch.cat([distances[:boundary], distances[boundary + 1 :]]).amin(dim=0)
        found.append(
            Match(
                boundary,
                len(positions),
                float((own / states[boundary][positions].norm(dim=-1)).max()),
                int(distances.mean(dim=-1).argmin()),
                float((others / own.clamp_min(1e-12)).min()),
            )
        )
    return tuple(found)
