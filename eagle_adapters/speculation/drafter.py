"""The reference drafter: any EAGLE-3 draft as a plain torch module, on CPU or GPU; loaded lazily, as it needs torch.

A draft reads the state of the target at position t together with the token at t + 1, and says what comes at t + 2. Its
own state is fed back in place of the target's while it drafts further on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.drafts.spec import DraftSpec, Weights
from eagle_adapters.errors import DataError
from eagle_adapters.speculation.layers import Layer, Memory, Norm, Rotation

__all__ = ["Drafter", "Memory", "load_drafter"]


class Drafter(nn.Module):
    """An EAGLE-3 draft.

    Args:
        spec: what the checkpoint says of itself; weights are random until `load_drafter` or a training sets them.

    Attributes:
        spec: as given.
        draft_to_target: token id of the target for each row of the head, or None when they are the same.

    Raises:
        DataError: EA801, the draft has a part that this drafter cannot compute.
    """

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        _refuse_unknown_parts(spec)
        self.spec = spec
        states = spec.num_aux * spec.target_hidden_size
        if spec.norms.before_fc:
            self.input_norm = Norm(states, spec.norm_eps)
        if spec.norms.per_state:
            self.fc_norm = nn.ModuleList(Norm(spec.target_hidden_size, spec.norm_eps) for _ in range(spec.num_aux))
        self.fc = nn.Linear(states, spec.hidden_size, bias="fc.bias" in spec.tensors)
        self.layers = nn.ModuleList(Layer(spec, index) for index in range(spec.num_layers))
        self.norm = Norm(spec.hidden_size, spec.norm_eps)
        self.rotate = Rotation(spec)
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.lm_head = nn.Linear(spec.hidden_size, spec.draft_vocab_size, bias=False)
        self.draft_to_target: Tensor | None
        self.register_buffer("draft_to_target", None, persistent=False)

    def combine(self, states: Sequence[Tensor]) -> Tensor:
        """The captured states, one [batch, tokens, target hidden] per boundary, as one [batch, tokens, hidden]."""
        if self.spec.norms.before_fc:
            states = [self.input_norm(torch.cat(list(states), dim=-1))]
        elif self.spec.norms.per_state:
            states = [norm(state) for norm, state in zip(self.fc_norm, states, strict=True)]
        out: Tensor = self.fc(torch.cat(list(states), dim=-1))
        return out

    def forward(
        self, tokens: Tensor, states: Tensor, positions: Tensor, visible: Tensor, memory: Memory
    ) -> tuple[Tensor, Tensor]:
        """One step of the draft.

        Args:
            tokens: [batch, tokens], target ids; the token after each state.
            states: [batch, tokens, hidden]: combined states, or the states fed back by the step before.
            positions: [batch, tokens], the positions of the states.
            visible: [batch or 1, tokens, slots], which slots of the memory, these tokens' own included, each one sees.
            memory: extended by these tokens.

        Returns:
            The state for the head, and the state to feed back, each [batch, tokens, hidden].
        """
        embeds = self.embed_tokens(tokens)
        for layer in self.layers:
            states = layer(embeds, states, positions, visible, memory, self.rotate)
        out = self.norm(states)
        return out, out if self.spec.norms.output else states

    def logits(self, out: Tensor) -> Tensor:
        """Scores over the draft's vocabulary, [..., draft vocabulary]."""
        scores: Tensor = self.lm_head(out)
        return scores

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """The target's token ids for rows of the head."""
        return draft_ids if self.draft_to_target is None else self.draft_to_target[draft_ids]

    def probabilities(self, out: Tensor, temperature: float, vocabulary: int) -> Tensor:
        """What the draft proposes, [..., vocabulary of the target]; zero for tokens that it does not know."""
        own = (self.logits(out).float() / temperature).softmax(dim=-1)
        if self.draft_to_target is None:
            return F.pad(own, (0, vocabulary - own.shape[-1]))
        return own.new_zeros(*own.shape[:-1], vocabulary).index_copy_(-1, self.draft_to_target, own)


def load_drafter(draft: str | Path | DraftSpec, target: Any, *, dtype: Any = None) -> Drafter:
    """The drafter of a checkpoint folder, ready to draft for `target`.

    Args:
        draft: a folder, or the spec of one.
        target: the `transformers` model; its embedding and head stand in where the draft has none.
        dtype: torch dtype, default the target's.

    Raises:
        DataError: EA700-EA703 as `read_draft`; EA801 a part that cannot be computed; EA802 tensors are missing or have
            other shapes; EA803 draft and target do not fit together.
    """
    spec = draft if isinstance(draft, DraftSpec) else read_draft(draft)
    drafter = Drafter(spec)
    weights = _read_tensors(spec)
    offsets, _ = weights.pop("d2t", None), weights.pop("t2d", None)
    weights = {name: tensor.float() for name, tensor in weights.items() if name in drafter.state_dict()}
    embedding, head = target.get_input_embeddings().weight, target.get_output_embeddings().weight
    if spec.embedding is Weights.TARGET:
        weights["embed_tokens.weight"] = embedding.detach().float()
    if spec.head is Weights.TARGET:
        weights["lm_head.weight"] = head.detach().float()
    elif spec.head is Weights.TIED:
        weights["lm_head.weight"] = weights["embed_tokens.weight"]
    _load(drafter, weights)
    if offsets is not None:
        drafter.draft_to_target = offsets.long() + torch.arange(len(offsets))
    _check_fit(drafter, embedding, head)
    drafter.to(device=embedding.device, dtype=dtype or embedding.dtype)
    drafter.eval().requires_grad_(False)
    return drafter


def _read_tensors(spec: DraftSpec) -> dict[str, Tensor]:
    from safetensors import safe_open

    out = {}
    for name, info in spec.tensors.items():
        if info.file is None:
            _refuse("EA802", f"the weights of {spec.name} are not on this machine", next_step="download the checkpoint")
        with safe_open(info.file, framework="pt") as file:
            out[name] = file.get_tensor(info.name)
    return out


def _load(drafter: Drafter, weights: Mapping[str, Tensor]) -> None:
    wanted = drafter.state_dict()
    wrong = [
        f"{name} {list(tensor.shape)}, found {list(weights[name].shape) if name in weights else 'none'}"
        for name, tensor in wanted.items()
        if name not in weights or weights[name].shape != tensor.shape
    ]
    if wrong:
        _refuse("EA802", f"the weights of {drafter.spec.name} do not fit its config", expected="; ".join(wrong))
    drafter.load_state_dict(dict(weights))


def _check_fit(drafter: Drafter, embedding: Tensor, head: Tensor) -> None:
    spec = drafter.spec
    if spec.target_hidden_size != embedding.shape[1]:
        found = f"{embedding.shape[1]} in the target"
        _refuse("EA803", "the draft takes states of another width", expected=str(spec.target_hidden_size), found=found)
    ids = drafter.target_ids(torch.arange(spec.draft_vocab_size))
    if int(ids.min()) < 0 or int(ids.max()) >= head.shape[0] or len(ids.unique()) != len(ids):
        found = f"ids {int(ids.min())}..{int(ids.max())}, {len(ids.unique())} different of {len(ids)}"
        _refuse(
            "EA803",
            "the draft's vocabulary map does not fit the target",
            expected=f"0..{head.shape[0] - 1}",
            found=found,
        )


def _refuse_unknown_parts(spec: DraftSpec) -> None:
    quantised = sorted(n for n in spec.tensors if n.endswith(("_scale", "_scale_inv", "_scale_2", "_packed")))
    experts = sorted(n for n in spec.tensors if ".experts." in n or n.endswith("mlp.gate.weight"))
    if not spec.uses_states:
        _refuse(
            "EA801", "the draft takes the target's final state, not captured ones", found="use_aux_hidden_state false"
        )
    if quantised:
        _refuse("EA801", "the draft is quantised", found=quantised[0], next_step="dequantise it first")
    if experts:
        _refuse("EA801", "the draft has a mixture of experts", found=experts[0])
    if spec.config.get("partial_rotary_factor", 1.0) not in (None, 1, 1.0):
        _refuse("EA801", "the draft turns a part of each head only", found="partial_rotary_factor")
    if "mask_hidden" in spec.tensors:
        _refuse("EA801", "the draft drafts all tokens in parallel", found="mask_hidden")


def _refuse(code: str, message: str, **parts: str) -> NoReturn:
    raise DataError(Diagnostic(code, message, Severity.ERROR, **parts))
