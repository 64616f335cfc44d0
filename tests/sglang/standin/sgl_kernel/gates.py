"""Ops that models of SGLang look up when they are imported: one is written, the others raise when they are called."""

from __future__ import annotations

from typing import NoReturn

import torch

_LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")

_UNWRITTEN = (
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
)
"""Looked up by sglang 0.5.23, srt/models/qwen3_5.py."""


def define_ops() -> None:
    """Register the ops of `torch.ops.sgl_kernel` that models want to find."""
    _LIBRARY.define("fused_sigmoid_mul_cpu(Tensor(a!) x, Tensor gate) -> ()")
    _LIBRARY.impl("fused_sigmoid_mul_cpu", _sigmoid_mul, "CompositeExplicitAutograd")
    for name in _UNWRITTEN:
        _LIBRARY.define(f"{name}(Tensor x) -> Tensor")
        _LIBRARY.impl(name, _missing, "CompositeExplicitAutograd")


def _sigmoid_mul(x: torch.Tensor, gate: torch.Tensor) -> None:
    """Multiply x by `sigmoid(gate)` in place; both have the same shape."""
    x.mul_(torch.sigmoid(gate.float()).to(x.dtype).view_as(x))


def _missing(x: torch.Tensor) -> NoReturn:
    raise NotImplementedError("sgl_kernel test stand-in: this op is not written")
