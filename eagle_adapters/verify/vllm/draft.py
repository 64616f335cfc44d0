"""Hand-made EAGLE-3 drafts whose acceptance rests on the captured states being the right ones.

The attention and MLP of the draft's one layer add nothing, so that it proposes `head(norm(fc(states)))`. Its `fc` is
fitted to turn the captured states of a position into what the target's head gets at the next; the norm only scales.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle_adapters.verify.vllm.reference import Reference


def fit_fc(reference: Reference, boundaries: Sequence[int]) -> Any:
    """The matrix [H, K * H] that turns the states of a position into what the head gets at the next, least squares."""
    import torch

    features, wanted = reference.captured(boundaries)[:-1].double(), reference.head_inputs[1:].double()
    solution = torch.linalg.lstsq(features, wanted, driver="gelsd").solution
    return solution.T.float().contiguous()


def save_draft(
    folder: Path,
    *,
    fc: Any,
    head: Any,
    ids: Sequence[int] | None,
    top_level_ids: bool = False,
    extra: dict[str, Any] | None = None,
) -> None:
    """Write a Llama-shaped EAGLE-3 draft.

    Args:
        folder: where `config.json` and `model.safetensors` go.
        fc: [H, K * H].
        head: the target's `lm_head` weight [V, H].
        ids: the layer ids written into the config, or None.
        top_level_ids: write the ids at top level instead of into `eagle_config`.
        extra: further config fields.
    """
    import torch
    from safetensors.torch import save_file

    vocabulary, width = head.shape
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": width,
        "num_hidden_layers": 1,
        "num_attention_heads": max(1, width // 64),
        "num_key_value_heads": max(1, width // 64),
        "head_dim": 64,
        "vocab_size": vocabulary,
        "draft_vocab_size": vocabulary,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
        **(extra or {}),
    }
    if ids is not None:
        if top_level_ids:
            config["eagle_aux_hidden_state_layer_ids"] = list(ids)
        else:
            config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": list(ids), "use_aux_hidden_state": True}
    heads = config["num_attention_heads"] * config["head_dim"]
    generator = torch.Generator().manual_seed(1)

    def noise(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator) * 0.02

    ones = torch.ones(width)
    state = {
        "fc.weight": fc,
        "lm_head.weight": head,
        "norm.weight": ones,
        "midlayer.hidden_norm.weight": ones,
        "midlayer.input_layernorm.weight": ones,
        "midlayer.post_attention_layernorm.weight": ones,
        "midlayer.self_attn.q_proj.weight": noise(heads, 2 * width),
        "midlayer.self_attn.k_proj.weight": noise(heads, 2 * width),
        "midlayer.self_attn.v_proj.weight": noise(heads, 2 * width),
        "midlayer.self_attn.o_proj.weight": torch.zeros(width, heads),
        "midlayer.mlp.gate_proj.weight": noise(width, width),
        "midlayer.mlp.up_proj.weight": noise(width, width),
        "midlayer.mlp.down_proj.weight": torch.zeros(width, width),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, folder / "model.safetensors")
