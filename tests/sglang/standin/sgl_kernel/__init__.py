"""TEST STAND-IN, not the real thing: the `sgl_kernel` names that SGLang's CPU engine calls, in plain PyTorch.

The wheel `sglang-kernel` needs libcuda to import, so a machine without a GPU cannot load it. With the folder above this
one on PYTHONPATH the unmodified engine serves on CPU. Every name that is not written here resolves to a function that
raises NotImplementedError when called, so nothing is faked in silence.

`torch.ops.sgl_kernel.convert_weight_packed` stays undefined on purpose: sglang 0.5.23, srt/utils/common.py probes it
to decide whether packed AMX weights can be used, and without it linear, MoE and norm layers take their PyTorch paths.
"""

from __future__ import annotations

from typing import Any, NoReturn

from sgl_kernel import attention as _attention
from sgl_kernel import gates as _gates
from sgl_kernel.caches import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

STAND_IN = "the plain PyTorch stand-in of eagle-adapters' tests"
__version__ = "0.4.10"
__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

_attention.define_ops()
_gates.define_ops()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel test stand-in: {name} is not written")

    missing.__name__ = name
    return missing
