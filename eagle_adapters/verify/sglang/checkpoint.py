"""Small random checkpoints of any architecture `transformers` knows, in the dialect that SGLang reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle_adapters.tiny import build_tiny

State = dict[str, Any]
Dialect = Callable[[dict[str, Any], State], State]


def save_checkpoint(config: Mapping[str, Any], folder: Path, seed: int = 0) -> Any:
    """Write a checkpoint that SGLang loads, and give the `transformers` model it was made from.

    Args:
        config: a whole `config.json`, as in `adapters/*/tiny.json`.
        folder: where `config.json` and `model.safetensors` go; made if it is not there.
        seed: of the weights.
    """
    model = build_tiny(config, seed=seed)
    model.save_pretrained(folder)
    translate(folder)
    return model


def translate(folder: Path) -> None:
    """Rewrite a checkpoint as `save_pretrained` wrote it into the dialect that SGLang reads, in place."""
    from safetensors.torch import load_file, save_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    dialect = DIALECTS.get(str(config["model_type"]))
    if dialect is not None:
        state = dialect(config, load_file(folder / "model.safetensors"))
        save_file(
            {name: tensor.contiguous() for name, tensor in state.items()},
            folder / "model.safetensors",
            metadata={"format": "pt"},
        )
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")


def _deepseek(text: dict[str, Any]) -> None:
    """Fields of the published DeepSeek configs that `transformers` does not write.

    SGLang's CPU path knows these models with YaRN only; YaRN by a factor of 1 is plain RoPE.
    """
    rope = text.pop("rope_parameters", None) or {}
    text["rope_theta"] = rope.get("rope_theta", 10000.0)
    scaling = {"factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0}
    scaling["original_max_position_embeddings"] = text["max_position_embeddings"]
    known = {name: value for name, value in rope.items() if name in scaling}
    text["rope_scaling"] = {"type": "yarn", **scaling, **known}
    text.update(moe_layer_freq=1, ep_size=1, num_nextn_predict_layers=0)
    if text["model_type"] == "deepseek_v3":
        text.update(topk_method="noaux_tc", scoring_func="sigmoid")  # the only way that `transformers` knows


def _kimi_k25(config: dict[str, Any], state: State) -> State:
    """The published names (`KimiK25ForConditionalGeneration`), and the vision fields of SGLang's own config class."""
    config["architectures"] = ["KimiK25ForConditionalGeneration"]
    config["media_placeholder_token_id"] = config["image_token_id"]
    text, vision = config["text_config"], config["vision_config"]
    text["architectures"] = ["DeepseekV3ForCausalLM"]
    _deepseek(text)
    width = vision["hidden_size"]
    vision.update(
        vt_hidden_size=width,
        mm_hidden_size=width,
        vt_intermediate_size=vision["intermediate_size"],
        vt_num_attention_heads=vision["num_attention_heads"],
        vt_num_hidden_layers=vision["num_hidden_layers"],
        text_hidden_size=text["hidden_size"],
        init_pos_emb_height=64,
        init_pos_emb_width=64,
        init_pos_emb_time=4,
        pos_emb_type="divided_fixed",
        video_attn_type="spatial_temporal",
        merge_type="sd2_tpool",
        mm_projector_type="patchmerger",
        projector_hidden_act="gelu",
        projector_ln_eps=1e-5,
    )
    names = (
        ("model.", ""),
        ("vision_tower.encoder.patch_embed.", "vision_tower.patch_embed."),
        ("language_model.model.blocks.", "language_model.model.layers."),
    )
    return rename(state, names)


def rename(state: State, prefixes: Sequence[tuple[str, str]]) -> State:
    """The same tensors with prefixes of their names replaced, one after the other."""
    out: State = {}
    for name, tensor in state.items():
        renamed = name
        for old, new in prefixes:
            if renamed.startswith(old):
                renamed = new + renamed.removeprefix(old)
        out[renamed] = tensor
    return out


def _deepseek_text(config: dict[str, Any], state: State) -> State:
    _deepseek(config)
    return state


def _qwen2_vl(config: dict[str, Any], state: State) -> State:
    """The published name of a vision field."""
    config["vision_config"]["in_chans"] = config["vision_config"].get("in_channels", 3)
    return state


def _gemma3(config: dict[str, Any], state: State) -> State:
    """The names of the published checkpoints' vision tower, which has no pooling head."""
    kept = {name: tensor for name, tensor in state.items() if not name.startswith("vision_tower.head.")}
    return rename(kept, (("vision_tower.", "vision_tower.vision_model."),))


def _ernie4_5(config: dict[str, Any], state: State) -> State:
    """The class name as SGLang and the published checkpoints write it."""
    config["architectures"] = ["Ernie4_5_ForCausalLM"]
    return state


def _gemma2(config: dict[str, Any], state: State) -> State:
    """Both names of the activation, as in the published configs."""
    config["hidden_act"] = config["hidden_activation"]
    return state


DIALECTS: dict[str, Dialect] = {
    "ernie4_5": _ernie4_5,
    "kimi_k25": _kimi_k25,
    "deepseek_v2": _deepseek_text,
    "deepseek_v3": _deepseek_text,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "qwen2_vl": _qwen2_vl,
}
"""model_type -> what has to be changed in the files that `transformers` writes."""
