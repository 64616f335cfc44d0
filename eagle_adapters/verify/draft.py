"""Write EAGLE-3 drafts whose one layer adds nothing: they propose `head(norm(fc(states)))`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def save_draft(
    folder: Path,
    *,
    fc: Any,
    head: Any,
    ids: Sequence[int] | None,
    top_level_ids: bool = False,
    latent: bool = False,
) -> None:
    """Write an EAGLE-3 draft of the Llama type, or of the DeepSeek type with latent attention.

    Args:
        folder: where `config.json` and `model.safetensors` go.
        fc: [H, K * H].
        head: the target's `lm_head` weight [V, H].
        ids: the layer ids written into the config, or None.
        top_level_ids: write the ids at top level instead of into `eagle_config`.
        latent: latent attention (MLA), as the target's own.
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
    }
    if latent:
        config |= _LATENT
    if ids is not None:
        if top_level_ids:
            config["eagle_aux_hidden_state_layer_ids"] = list(ids)
        else:
            config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": list(ids), "use_aux_hidden_state": True}
    generator = torch.Generator().manual_seed(1)

    def noise(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator) * 0.02

    ones = torch.ones(width)
    attention = _latent_attention(config, noise) if latent else _plain_attention(config, noise)
    state = {
        "fc.weight": fc,
        "lm_head.weight": head,
        "norm.weight": ones,
        "midlayer.hidden_norm.weight": ones,
        "midlayer.input_layernorm.weight": ones,
        "midlayer.post_attention_layernorm.weight": ones,
        **{f"midlayer.self_attn.{name}.weight": tensor for name, tensor in attention.items()},
        "midlayer.mlp.gate_proj.weight": noise(width, width),
        "midlayer.mlp.up_proj.weight": noise(width, width),
        "midlayer.mlp.down_proj.weight": torch.zeros(width, width),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, folder / "model.safetensors")


_LATENT = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "q_lora_rank": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
}
"""The fields of a latent draft; the widths are those that vLLM's CPU kernels know."""


def _plain_attention(config: dict[str, Any], noise: Callable[..., Any]) -> dict[str, Any]:
    heads, width = config["num_attention_heads"] * config["head_dim"], config["hidden_size"]
    inputs = {name: noise(heads, 2 * width) for name in ("q_proj", "k_proj", "v_proj")}
    return {**inputs, "o_proj": noise(width, heads) * 0}


def _latent_attention(config: dict[str, Any], noise: Callable[..., Any]) -> dict[str, Any]:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    query, latent, rope = config["q_lora_rank"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    return {
        "q_a_proj": noise(query, 2 * width),
        "q_a_layernorm": noise(query) * 0 + 1,
        "q_b_proj": noise(heads * (config["qk_nope_head_dim"] + rope), query),
        "kv_a_proj_with_mqa": noise(latent + rope, 2 * width),
        "kv_a_layernorm": noise(latent) * 0 + 1,
        "kv_b_proj": noise(heads * (config["qk_nope_head_dim"] + config["v_head_dim"]), latent),
        "o_proj": noise(width, heads * config["v_head_dim"]) * 0,
    }
