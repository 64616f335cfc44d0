"""The layers of an EAGLE-3 draft in plain torch; loaded lazily, as it needs torch.

Names and arithmetic follow vllm 0.32.0 (`models/llama_eagle3.py`, `models/deepseek_eagle3.py`) and sglang 0.5.23
(`models/llama_eagle3.py`, `models/kimi_k25_eagle3.py`); parameters have the canonical names of `eagle_adapters.drafts`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eagle_adapters.drafts.spec import DraftSpec

Entries = tuple[Tensor, ...]
"""What a layer remembers of each position: tensors [batch, slots, ...]."""


class Memory:
    """The key/value memory of a draft: slots in the order in which they were filled, for every row of the batch."""

    def __init__(self) -> None:
        self._layers: dict[int, Entries] = {}

    def extend(self, layer: int, entries: Entries) -> Entries:
        """Append slots to a layer and return all of its slots."""
        kept = self._layers.get(layer)
        if kept is not None:
            entries = tuple(torch.cat([old, new], dim=1) for old, new in zip(kept, entries, strict=True))
        self._layers[layer] = entries
        return entries

    def crop(self, slots: int) -> None:
        """Forget every slot from `slots` on."""
        self._layers = {layer: tuple(e[:, :slots] for e in entries) for layer, entries in self._layers.items()}

    @property
    def slots(self) -> int:
        """How many slots are filled."""
        return next((entries[0].shape[1] for entries in self._layers.values()), 0)


class Norm(nn.Module):
    """Root mean square norm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., width], normed over its last axis."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Rotation(nn.Module):
    """Rotary positions: every variant that `transformers` knows, from the draft's own fields."""

    def __init__(self, spec: DraftSpec) -> None:
        super().__init__()
        from transformers import LlamaConfig
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        width = spec.latent.qk_rope_head_dim if spec.latent else spec.head_dim
        theta = spec.rope.theta or 10000.0
        kind = spec.rope.scaling.get("rope_type", "default")
        longest = spec.rope.max_position or 2048
        scale = 1.0
        if kind == "default":
            frequencies = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
        else:
            config = LlamaConfig(
                hidden_size=width,
                num_attention_heads=1,
                head_dim=width,
                max_position_embeddings=longest,
                rope_parameters={"rope_theta": theta, **spec.rope.scaling},
            )
            frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
        self.frequencies: Tensor
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.scale = float(scale)
        self.interleaved = spec.latent is not None

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """`x` [batch, tokens, heads, width], turned by `positions` [batch, tokens]."""
        angles = (positions[..., None].float() * self.frequencies)[:, :, None]
        cos, sin = (angles.cos() * self.scale).to(x.dtype), (angles.sin() * self.scale).to(x.dtype)
        if self.interleaved:
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, scale: float) -> Tensor:
    """Attention over slots: [batch, tokens, heads * value width].

    Args:
        query: [batch, tokens, heads, width].
        key: [batch, slots, key heads, width].
        value: [batch, slots, key heads, value width].
        visible: [batch or 1, tokens, slots], which slot each token sees.
        scale: of the scores.
    """
    groups = query.shape[2] // key.shape[2]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=2), value.repeat_interleave(groups, dim=2)
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=visible[:, None], scale=scale)
    return out.transpose(1, 2).flatten(2)


class GroupedAttention(nn.Module):
    """Llama-type attention; norms of query and key where the checkpoint has them (Qwen3-type drafts)."""

    def __init__(self, spec: DraftSpec, index: int, width: int) -> None:
        super().__init__()
        self.index, self.head_dim = index, spec.head_dim
        self.scale = spec.head_dim**-0.5
        own = f"layers.{index}.self_attn."

        def linear(name: str, rows: int, columns: int) -> nn.Linear:
            return nn.Linear(columns, rows, bias=f"{own}{name}.bias" in spec.tensors)

        query, pair = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = linear("q_proj", query, width)
        self.k_proj = linear("k_proj", pair, width)
        self.v_proj = linear("v_proj", pair, width)
        self.o_proj = linear("o_proj", spec.hidden_size, query)
        self.q_norm = Norm(spec.head_dim, spec.norm_eps) if f"{own}q_norm.weight" in spec.tensors else None
        self.k_norm = Norm(spec.head_dim, spec.norm_eps) if f"{own}k_norm.weight" in spec.tensors else None

    def forward(self, x: Tensor, positions: Tensor, visible: Tensor, memory: Memory, rotate: Rotation) -> Tensor:
        """`x` [batch, tokens, width] -> [batch, tokens, hidden]."""
        query, key, value = (
            layer(x).unflatten(-1, (-1, self.head_dim)) for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        query = self.q_norm(query) if self.q_norm is not None else query
        key = self.k_norm(key) if self.k_norm is not None else key
        key, value = memory.extend(self.index, (rotate(key, positions), value))
        out: Tensor = self.o_proj(attend(rotate(query, positions), key, value, visible, self.scale))
        return out


class LatentAttention(nn.Module):
    """DeepSeek-type attention (MLA): the memory holds the latent and one rotated key for all heads."""

    def __init__(self, spec: DraftSpec, index: int, width: int) -> None:
        super().__init__()
        assert spec.latent is not None
        self.index, self.latent, self.heads = index, spec.latent, spec.num_heads
        nope, rope, value = spec.latent.qk_nope_head_dim, spec.latent.qk_rope_head_dim, spec.latent.v_head_dim
        self.scale = (nope + rope) ** -0.5 * _score_scale(spec) ** 2
        query = spec.num_heads * (nope + rope)
        rank = spec.latent.q_lora_rank
        if rank is None:
            self.q_proj = nn.Linear(width, query, bias=False)
        else:
            self.q_a_proj = nn.Linear(width, rank, bias=False)
            self.q_a_layernorm = Norm(rank, spec.norm_eps)
            self.q_b_proj = nn.Linear(rank, query, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(width, spec.latent.kv_lora_rank + rope, bias=False)
        self.kv_a_layernorm = Norm(spec.latent.kv_lora_rank, spec.norm_eps)
        self.kv_b_proj = nn.Linear(spec.latent.kv_lora_rank, spec.num_heads * (nope + value), bias=False)
        self.o_proj = nn.Linear(spec.num_heads * value, spec.hidden_size, bias=False)

    def forward(self, x: Tensor, positions: Tensor, visible: Tensor, memory: Memory, rotate: Rotation) -> Tensor:
        """`x` [batch, tokens, width] -> [batch, tokens, hidden]."""
        latent = self.latent
        low = latent.q_lora_rank is not None
        query = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) if low else self.q_proj(x)
        query, turned = query.unflatten(-1, (self.heads, -1)).split(
            [latent.qk_nope_head_dim, latent.qk_rope_head_dim], dim=-1
        )
        packed, shared = self.kv_a_proj_with_mqa(x).split([latent.kv_lora_rank, latent.qk_rope_head_dim], dim=-1)
        packed, shared = memory.extend(self.index, (self.kv_a_layernorm(packed), rotate(shared[:, :, None], positions)))
        key, value = (
            self.kv_b_proj(packed)
            .unflatten(-1, (self.heads, -1))
            .split([latent.qk_nope_head_dim, latent.v_head_dim], dim=-1)
        )
        query = torch.cat([query, rotate(turned, positions)], dim=-1)
        key = torch.cat([key, shared.expand(-1, -1, self.heads, -1)], dim=-1)
        out: Tensor = self.o_proj(attend(query, key, value, visible, self.scale))
        return out


def _score_scale(spec: DraftSpec) -> float:
    """What yarn adds to the scores of MLA (vllm 0.32.0, models/deepseek_v2.py `yarn_get_mscale`)."""
    from math import log

    factor, all_dims = spec.rope.scaling.get("factor", 1.0), spec.rope.scaling.get("mscale_all_dim", 0)
    return 0.1 * all_dims * log(factor) + 1.0 if all_dims and factor > 1 else 1.0


class GatedMlp(nn.Module):
    """The dense MLP of a draft layer."""

    def __init__(self, spec: DraftSpec, index: int) -> None:
        super().__init__()
        from transformers.activations import ACT2FN

        own = f"layers.{index}.mlp."

        def linear(name: str, rows: int, columns: int) -> nn.Linear:
            return nn.Linear(columns, rows, bias=f"{own}{name}.bias" in spec.tensors)

        self.gate_proj = linear("gate_proj", spec.intermediate_size, spec.hidden_size)
        self.up_proj = linear("up_proj", spec.intermediate_size, spec.hidden_size)
        self.down_proj = linear("down_proj", spec.hidden_size, spec.intermediate_size)
        self.activation: Any = ACT2FN[spec.config.get("hidden_act") or "silu"]

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., hidden] -> [..., hidden]."""
        out: Tensor = self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer. The first takes the token's embedding beside the state; later ones the state alone."""

    def __init__(self, spec: DraftSpec, index: int) -> None:
        super().__init__()
        hidden, first = spec.hidden_size, index == 0
        attention = LatentAttention if spec.latent else GroupedAttention
        self.self_attn = attention(spec, index, 2 * hidden if first else hidden)
        self.mlp = GatedMlp(spec, index)
        self.post_attention_layernorm = Norm(hidden, spec.norm_eps)
        # After the first layer vllm norms the state with `input_layernorm`, sglang with `hidden_norm`.
        later = "hidden_norm" if f"layers.{index}.hidden_norm.weight" in spec.tensors else "input_layernorm"
        for name in ("input_layernorm", "hidden_norm") if first else (later,):
            setattr(self, name, Norm(hidden, spec.norm_eps))
        self.first, self.state_norm = first, "hidden_norm" if first else later
        self.norm_before_residual = spec.norms.before_residual

    def forward(
        self, embeds: Tensor, state: Tensor, positions: Tensor, visible: Tensor, memory: Memory, rotate: Rotation
    ) -> Tensor:
        """The residual stream after this layer, [batch, tokens, hidden]."""
        normed = getattr(self, self.state_norm)(state)
        x = normed
        if self.first:
            x = torch.cat([self.input_layernorm(embeds), normed], dim=-1)
            state = normed if self.norm_before_residual else state
        state = state + self.self_attn(x, positions, visible, memory, rotate)
        out: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return out
