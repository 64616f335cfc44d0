"""The names of a draft's tensors: every layout seen in published drafts, and the one canonical name of each tensor.

Canonical is the layout of speculators and modelopt: `layers.0.self_attn.q_proj.weight`, `fc.weight`, `lm_head.weight`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum


class Layout(StrEnum):
    """How a checkpoint names its tensors."""

    MIDLAYER = "midlayer"
    """`midlayer.*`: EAGLE reference, SpecForge, AngelSlim, TorchSpec's own export."""
    LAYERS = "layers"
    """`layers.0.*`: speculators, modelopt, TorchSpec's vLLM export. The canonical names."""
    PREFIXED = "prefixed"
    """`model.layers.0.*`, with the head and the vocabulary maps outside: NeMo Automodel."""


_OUTSIDE = ("lm_head.", "d2t", "t2d", "mask_hidden")
"""What never carries the `model.` prefix when written."""

_QUANTISED = r"(?:weight(?:_scale(?:_inv|_2)?|_packed|_shape|_zero_point|_g_idx)?|input_scale|bias)"
_LINEAR = (
    r"self_attn\.(?:q_proj|k_proj|v_proj|o_proj|q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj)"
    r"|mlp\.(?:gate_proj|up_proj|down_proj|gate|router)"
    r"|mlp\.(?:experts\.\d+|shared_experts?)\.(?:gate_proj|up_proj|down_proj)"
)
_NORM = (
    r"self_attn\.(?:q_norm|k_norm|q_a_layernorm|kv_a_layernorm)"
    r"|input_layernorm|hidden_norm|post_attention_layernorm"
)
_LAYER = re.compile(
    rf"layers\.\d+\.(?:(?:{_LINEAR})\.{_QUANTISED}|(?:{_NORM})\.weight|mlp\.gate\.e_score_correction_bias)"
)
_TOP = re.compile(
    rf"(?:fc|lm_head)\.{_QUANTISED}|(?:embed_tokens|norm|input_norm)\.weight|fc_norm\.\d+\.weight|d2t|t2d|mask_hidden"
)
_LEGACY = {"aux_norm_low.": "fc_norm.0.", "aux_norm_mid.": "fc_norm.1.", "aux_norm_high.": "fc_norm.2."}


def canonical(name: str) -> str | None:
    """The canonical name of a tensor, or None when no known draft has such a tensor."""
    short = name.removeprefix("model.")
    if short.startswith("midlayer."):
        short = "layers.0." + short.removeprefix("midlayer.")
    for old, new in _LEGACY.items():
        if short.startswith(old):
            short = new + short.removeprefix(old)
    return short if _LAYER.fullmatch(short) or _TOP.fullmatch(short) else None


def write(name: str, layout: Layout) -> str:
    """The name that a canonically named tensor has in `layout`; `canonical` reads it back."""
    if layout is Layout.MIDLAYER and name.startswith("layers.0."):
        return "midlayer." + name.removeprefix("layers.0.")
    if layout is Layout.PREFIXED and not name.startswith(_OUTSIDE):
        return "model." + name
    return name


def layout_of(names: Iterable[str]) -> Layout:
    """The layout of a checkpoint, from the names of its tensors."""
    names = list(names)
    if any(name.startswith("midlayer.") for name in names):
        return Layout.MIDLAYER
    if any(name.startswith("model.") for name in names):
        return Layout.PREFIXED
    return Layout.LAYERS
