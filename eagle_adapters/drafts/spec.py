"""What is known of an EAGLE-3 draft, in one form for every format: the `DraftSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from eagle_adapters.drafts.header import TensorInfo
from eagle_adapters.drafts.keys import Layout


class Format(StrEnum):
    """Who wrote the checkpoint, as far as the file tells."""

    EAGLE = "eagle"
    SPECFORGE = "specforge"
    ANGELSLIM = "angelslim"
    SPECULATORS = "speculators"
    MODELOPT = "modelopt"
    TORCHSPEC = "torchspec"
    AUTOMODEL = "automodel"


class Attention(StrEnum):
    """The attention of the draft's layers."""

    GQA = "gqa"
    MLA = "mla"


class Weights(StrEnum):
    """Where the embedding or the head of a draft comes from."""

    OWN = "own"
    """The checkpoint carries it."""
    TARGET = "target"
    """The checkpoint lacks it: the engine shares the target's."""
    TIED = "tied"
    """The head is the draft's embedding (`tie_word_embeddings`)."""
    UNKNOWN = "unknown"
    """Only the config is at hand."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A value and the field or tensor that states it."""

    value: Any
    where: str

    def __str__(self) -> str:
        return f"{self.value} ({self.where})"


@dataclass(frozen=True, slots=True)
class Latent:
    """The widths of multi-head latent attention (MLA)."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True)
class Norms:
    """The norm switches of a draft; what the config leaves out is False.

    Attributes:
        before_residual: the residual of the first layer is taken after `hidden_norm`.
        before_fc: one norm over all captured states together, before `fc` (weight `input_norm`).
        per_state: one norm for each captured state, before `fc` (weights `fc_norm.i`; EAGLE-3.1).
        output: the next draft step gets the state after the last norm instead of before it (EAGLE-3.1).
        stated: the fields of the config that state them, `{"norm_output": "norm_output", ...}` -> path.
    """

    before_residual: bool
    before_fc: bool
    per_state: bool
    output: bool
    stated: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions.

    Attributes:
        theta: the base, or None when the config does not state it.
        scaling: the scaling without base and sections, `{}` when there is none; `rope_type` always named so.
        mrope_section: the sections of multimodal positions, or None.
        max_position: the longest position the config allows, or None.
    """

    theta: float | None
    scaling: Mapping[str, Any]
    mrope_section: tuple[int, ...] | None
    max_position: int | None


@dataclass(frozen=True, slots=True)
class DraftSpec:
    """An EAGLE-3 draft checkpoint, read but not loaded.

    Attributes:
        name: what the caller asked for: a path or a hub name.
        folder: the folder of the checkpoint, or None for a hub name.
        format: who wrote it.
        layout: how its tensors are named, or None without weights.
        architectures: the class names of the config.
        model_type: the `model_type` of the layer config.
        attention: `gqa` (Llama type) or `mla` (DeepSeek type).
        latent: the MLA widths, or None.
        hidden_size: width of the draft.
        target_hidden_size: width of one captured state of the target.
        target_hidden_where: the field that states it; `hidden_size` when there is no own one.
        intermediate_size: width of the MLP.
        num_layers: decoder layers of the draft.
        num_heads: attention heads.
        num_kv_heads: key/value heads.
        head_dim: width of one head (GQA).
        norm_eps: epsilon of the RMS norms.
        vocab_size: rows of the embedding: the target's vocabulary.
        draft_vocab_size: rows of the head.
        draft_vocab_stated: whether the config states it.
        uses_states: False when the draft takes the target's last state alone (`use_aux_hidden_state: false`).
        num_aux: captured states that `fc` takes; 0 when it uses none.
        aux_claims: everything that says how many, strongest first: the shape of `fc.weight`, then the fields.
        ids: the layer ids as written, or None.
        id_claims: every field that states ids.
        norms: the norm switches.
        rope: rotary positions.
        embedding: where its embedding comes from.
        head: where its head comes from.
        tensors: canonical name -> tensor; empty without weights.
        doubles: canonical name -> further tensors of the same meaning.
        unknown: tensors that no known draft has.
        side_files: other weight-like files beside it that nothing here opens (`*.pt`, `*.bin`).
        verifier: the target that the checkpoint names, or None.
        speculative_tokens: the draft steps that the checkpoint asks for, or None.
        config: the layer config: flat, or the `transformer_layer_config` of speculators.
        document: the whole config.json.
    """

    name: str
    folder: Path | None
    format: Format
    layout: Layout | None
    architectures: tuple[str, ...]
    model_type: str | None
    attention: Attention
    latent: Latent | None
    hidden_size: int
    target_hidden_size: int
    target_hidden_where: str
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    vocab_size: int
    draft_vocab_size: int
    draft_vocab_stated: bool
    uses_states: bool
    num_aux: int
    aux_claims: tuple[Claim, ...]
    ids: tuple[int, ...] | None
    id_claims: tuple[Claim, ...]
    norms: Norms
    rope: Rope
    embedding: Weights
    head: Weights
    tensors: Mapping[str, TensorInfo]
    doubles: Mapping[str, Sequence[TensorInfo]]
    unknown: tuple[TensorInfo, ...]
    side_files: tuple[Path, ...]
    verifier: str | None
    speculative_tokens: int | None
    config: Mapping[str, Any]
    document: Mapping[str, Any]

    @property
    def has_weights(self) -> bool:
        """Whether the tensors are known, not only the config."""
        return bool(self.tensors or self.unknown)

    @property
    def full_vocabulary(self) -> bool:
        """Whether the head covers the whole vocabulary, so that no map is needed."""
        return self.draft_vocab_size == self.vocab_size

    @property
    def experts(self) -> bool:
        """Whether its MLP is a mixture of experts."""
        routed = "layers.0.mlp.gate.weight" in self.tensors
        return routed or self.config.get("use_moe") is True or "moe" in (self.model_type or "")

    @property
    def nested(self) -> bool:
        """Whether the config nests its layer config (speculators)."""
        return self.format is Format.SPECULATORS

    def required_tensors(self) -> dict[str, tuple[int, ...] | None]:
        """The canonical names this draft cannot do without, with the shape the config implies (None: not implied)."""
        hidden = self.hidden_size
        out: dict[str, tuple[int, ...] | None] = {"norm.weight": (hidden,)}
        if self.uses_states:
            out["fc.weight"] = (hidden, self.target_hidden_size * self.num_aux)
        if self.norms.before_fc:
            out["input_norm.weight"] = (self.target_hidden_size * self.num_aux,)
        if self.norms.per_state:
            out.update({f"fc_norm.{k}.weight": (self.target_hidden_size,) for k in range(self.num_aux)})
        for layer in range(self.num_layers):
            out.update(self._layer(f"layers.{layer}.", 2 * hidden if layer == 0 else hidden))
        return out

    def _layer(self, at: str, width: int) -> dict[str, tuple[int, ...] | None]:
        hidden = self.hidden_size
        out: dict[str, tuple[int, ...] | None] = {f"{at}post_attention_layernorm.weight": (hidden,)}
        if at == "layers.0.":
            out[f"{at}input_layernorm.weight"] = (hidden,)
            if self.uses_states:
                out[f"{at}hidden_norm.weight"] = (hidden,)
        out.update(self._latent_attention(at, width) if self.latent else self._attention(at, width))
        if self.experts:
            out[f"{at}mlp.gate.weight"] = None
        else:
            out[f"{at}mlp.gate_proj.weight"] = out[f"{at}mlp.up_proj.weight"] = (self.intermediate_size, hidden)
            out[f"{at}mlp.down_proj.weight"] = (hidden, self.intermediate_size)
        return out

    def _attention(self, at: str, width: int) -> dict[str, tuple[int, ...] | None]:
        query, pair = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return {
            f"{at}self_attn.q_proj.weight": (query, width),
            f"{at}self_attn.k_proj.weight": (pair, width),
            f"{at}self_attn.v_proj.weight": (pair, width),
            f"{at}self_attn.o_proj.weight": (self.hidden_size, query),
        }

    def _latent_attention(self, at: str, width: int) -> dict[str, tuple[int, ...] | None]:
        latent = self.latent
        assert latent is not None
        heads = self.num_heads
        query = heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
        out: dict[str, tuple[int, ...] | None] = {
            f"{at}self_attn.kv_a_proj_with_mqa.weight": (latent.kv_lora_rank + latent.qk_rope_head_dim, width),
            f"{at}self_attn.kv_a_layernorm.weight": (latent.kv_lora_rank,),
            f"{at}self_attn.kv_b_proj.weight": (
                heads * (latent.qk_nope_head_dim + latent.v_head_dim),
                latent.kv_lora_rank,
            ),
            f"{at}self_attn.o_proj.weight": (self.hidden_size, heads * latent.v_head_dim),
        }
        if latent.q_lora_rank is None:
            return out | {f"{at}self_attn.q_proj.weight": (query, width)}
        return out | {
            f"{at}self_attn.q_a_proj.weight": (latent.q_lora_rank, width),
            f"{at}self_attn.q_a_layernorm.weight": (latent.q_lora_rank,),
            f"{at}self_attn.q_b_proj.weight": (query, latent.q_lora_rank),
        }
