"""TEST STAND-IN, not the real thing: Triton kernels of SGLang in plain PyTorch, for a machine without a GPU.

Only kernels that a model calls without asking whether there is a GPU (sglang 0.5.23, models/qwen2_moe.py).
"""

import torch

from eagle_adapters.backends.imports import after_import


def register():
    after_import(
        "sglang.srt.models.qwen2_moe",
        lambda module: setattr(module, "fused_gate_sigmoid_mul_add", add_gated),
    )


def add_gated(hidden_states, gate_weight, shared_output, final_hidden_states):
    """Add `sigmoid(hidden_states . gate_weight) * shared_output` in place; all are [tokens, hidden] but the weight."""
    gate = torch.sigmoid((hidden_states.float() * gate_weight.float()).sum(-1, keepdim=True))
    final_hidden_states += (gate * shared_output.float()).to(final_hidden_states.dtype)
