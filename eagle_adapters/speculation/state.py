"""The two sides of a generation: what the target has seen, and what the draft has seen.

Both keep every slot they ever filled and hide the ones that were not accepted, with an explicit mask. So a batch whose
rows accept different numbers of tokens needs no surgery on any cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagle_adapters.boundaries import Boundary
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import UsageError
from eagle_adapters.speculation.drafter import Drafter, Memory


class TargetState:
    """The target's side.

    Args:
        model: a wrapped `transformers` model.
        boundaries: the states that every forward hands out, in this order.
        length: the longest sequence that will be asked for.

    Raises:
        UsageError: EA804, the model's cache or positions do not allow to verify drafts this way.
    """

    def __init__(self, model: Any, boundaries: Sequence[Boundary], length: int) -> None:
        from transformers import DynamicCache

        _refuse_other_caches(model, length)
        self.model, self.boundaries = model, tuple(boundaries)
        self.cache = DynamicCache()
        self.visible: Tensor

    def prefill(self, tokens: Tensor, real: Tensor, inputs: Mapping[str, Any]) -> tuple[Tensor, list[Tensor]]:
        """Read the prompts: logits [batch, tokens, vocabulary] and states [batch, tokens, hidden].

        Args:
            tokens: [batch, tokens], filled up on the right.
            real: [batch, tokens], what is no filling.
            inputs: further inputs of the model, such as pixels.
        """
        _refuse_moving_positions(self.model, inputs)
        self.visible = real
        return self._forward(input_ids=tokens, attention_mask=real.long(), **inputs)

    def verify(self, tokens: Tensor, positions: Tensor, among: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Read drafted tokens [batch, nodes] at `positions`; `among` [batch, nodes, nodes] says who sees whom."""
        seen = self.visible[:, None].expand(-1, tokens.shape[1], -1)
        visible = torch.cat([seen, among], dim=-1)[:, None]
        dtype = self.model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        mask.masked_fill_(~visible, torch.finfo(dtype).min)
        return self._forward(input_ids=tokens, attention_mask=mask, position_ids=positions)

    def keep(self, accepted: Tensor) -> None:
        """Say which of the tokens verified last are part of the sequences, [batch, nodes]."""
        self.visible = torch.cat([self.visible, accepted], dim=1)

    def _forward(self, **inputs: Any) -> tuple[Tensor, list[Tensor]]:
        with self.model.eagle3_capture(self.boundaries) as capture:
            out = self.model(**inputs, past_key_values=self.cache, use_cache=True)
        step = capture.steps[-1]
        return out.logits, [step[b] for b in self.boundaries]


class DraftState:
    """The draft's side.

    Attributes:
        out: [batch, hidden], for the head: what comes after the last sure token.
        fed: [batch, hidden], to be fed back with the next token.
        position: [batch], the position of the last state.
    """

    def __init__(self, drafter: Drafter) -> None:
        self.drafter, self.memory = drafter, Memory()
        self.visible: Tensor | None = None
        self.out: Tensor
        self.fed: Tensor
        self.position: Tensor

    def absorb(self, tokens: Tensor, states: Sequence[Tensor], positions: Tensor, real: Tensor) -> None:
        """Read states of the target, each with the token that follows it.

        Args:
            tokens: [batch, tokens].
            states: one [batch, tokens, hidden] per boundary.
            positions: [batch, tokens].
            real: [batch, tokens]; what is real comes first in every row, at least one token.
        """
        width = tokens.shape[1]
        lower = torch.ones(width, width, dtype=torch.bool, device=tokens.device).tril()
        among = (lower & real[:, None]) | torch.eye(width, dtype=torch.bool, device=tokens.device)
        seen = among if self.visible is None else torch.cat([self._seen(width), among], dim=-1)
        out, fed = self.drafter(tokens, self.drafter.combine(states), positions, seen, self.memory)
        self.visible = real if self.visible is None else torch.cat([self.visible, real], dim=1)
        rows, last = torch.arange(len(tokens), device=tokens.device), real.sum(dim=1) - 1
        self.out, self.fed, self.position = out[rows, last], fed[rows, last], positions[rows, last]

    def ahead(self, tokens: Tensor, fed: Tensor, depth: int, among: Tensor) -> tuple[Tensor, Tensor]:
        """One step of the draft on its own, [batch, tokens] at a time; `crop` the memory when the round is over.

        Args:
            tokens: [batch, tokens], drafted.
            fed: [batch, tokens, hidden], the state that each was drafted from.
            depth: how many steps after the last state of the target.
            among: [batch, tokens, slots since the round began], who sees whom.
        """
        positions = (self.position + depth)[:, None].expand(-1, tokens.shape[1])
        visible = torch.cat([self._seen(tokens.shape[1]), among], dim=-1)
        out: tuple[Tensor, Tensor] = self.drafter(tokens, fed, positions, visible, self.memory)
        return out

    def _seen(self, width: int) -> Tensor:
        assert self.visible is not None, "absorb the prompt first"
        return self.visible[:, None].expand(-1, width, -1)


def _refuse_other_caches(model: Any, length: int) -> None:
    config = model.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ())
    found = sorted(kinds - {"full_attention", "sliding_attention"})
    window = getattr(config, "sliding_window", None)
    if getattr(model, "_is_stateful", False):
        found.append("a recurrent state")
    if window is not None and window < length and ("sliding_attention" in kinds or not kinds):
        found.append(f"a sliding window of {window} for {length} tokens")
    if found:
        _refuse(f"{type(model).__name__} cannot take back drafted tokens here", "full attention", ", ".join(found))


def _refuse_moving_positions(model: Any, inputs: Mapping[str, Any]) -> None:
    inner = getattr(model, "model", model)
    if inputs and (hasattr(model, "get_rope_index") or hasattr(inner, "get_rope_index")):
        _refuse("positions after a picture are not those of the tokens", "text alone for this model", ", ".join(inputs))


def _refuse(message: str, expected: str, found: str) -> None:
    raise UsageError(Diagnostic("EA804", message, expected=expected, found=found))
