"""The EAGLE-3 target contract as typed protocols, one per engine, for authors and type checkers.

A type checker compares signatures; at run time `eagle_adapters.contract.check` does, and says what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import torch


class CapturedStates(Protocol):
    """What `eagle3_capture` gives: the states of every forward that ran inside the context."""

    @property
    def steps(self) -> Sequence[Any]:
        """One mapping boundary -> tensor [batch, tokens, hidden] for each forward of the decoder."""

    def __getitem__(self, boundary: int) -> torch.Tensor:
        """The states at one boundary over all steps: [batch, all tokens, hidden]."""


class TransformersEagle3Target(Protocol):
    """A `transformers` model that `eagle_adapters.wrap` has adapted."""

    def eagle3_capture(self, boundaries: Sequence[int] | None = None) -> AbstractContextManager[CapturedStates]:
        """A context in which every forward records the residual stream at `boundaries` (default (2, N//2, N-3))."""

    def get_embed_and_head(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The embedding [vocab, hidden] and the head [vocab, hidden] that a draft may share."""


class VllmEagle3Target(Protocol):
    """vLLM's structural protocol (vllm 0.32.0, model_executor/models/interfaces.py)."""

    supports_eagle3: ClassVar[bool]
    has_own_lm_head: bool
    has_own_embed_tokens: bool

    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        """Choose the boundaries that forward returns beside the hidden states."""

    def get_eagle3_default_aux_hidden_state_layers(self) -> tuple[int, ...]:
        """The boundaries for a draft that names none."""


class SglangEagle3Target(Protocol):
    """What SGLang calls on the top-level model (sglang 0.5.23, attention_backend_setup.py, pp_draft_embedding.py)."""

    def set_eagle3_layers_to_capture(self, layer_ids: list[int] | None = None) -> None:
        """Choose the layers whose states forward hands to the logits processor; None means the defaults."""

    def get_embed_and_head(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The embedding and the head, each [padded vocab, hidden], that the draft shares."""

    def set_embed_and_head(self, embed: torch.Tensor, head: torch.Tensor) -> None:
        """Replace the embedding and the head."""
