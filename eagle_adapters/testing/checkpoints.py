"""Small draft checkpoints and target configs of every published shape, written with the standard library alone."""

from __future__ import annotations

import json
import math
import random
import struct
from array import array
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

HIDDEN, HEADS, HEAD_DIM, MLP, VOCAB, DRAFT_VOCAB = 32, 4, 8, 48, 400, 100
"""The widths of the small checkpoints."""

Tensor = tuple[str, tuple[int, ...], bytes]
"""dtype, shape, little-endian values."""

Tensors = dict[str, Tensor]
"""What `write_safetensors` writes."""


def write_safetensors(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Path:
    """A well-formed file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in tensors.values()))
    return path


def write_sparse(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Path:
    """A file of the real size of a checkpoint that takes no space: a header, and a hole for the values."""
    header: dict[str, Any] = {}
    at = 0
    for name, shape in shapes.items():
        stop = at + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, stop]}
        at = stop
    text = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + at)
    return path


@cache
def trained(shape: tuple[int, ...], seed: int) -> Tensor:
    """Numbers like those of trained weights: every row has its own spread, with heavy tails."""
    rng = random.Random(seed)
    width = shape[-1]
    values = array("f")
    for _ in range(math.prod(shape) // width):
        spread = math.exp(rng.gauss(-3.5, 0.6))
        values.extend(rng.gauss(0, spread) * (3 if rng.random() < 0.05 else 1) for _ in range(width))
    return "F32", shape, values.tobytes()


@cache
def normal(shape: tuple[int, ...], spread: float, seed: int = 0) -> Tensor:
    """Freshly initialised weights."""
    rng = random.Random(seed)
    return "F32", shape, array("f", (rng.gauss(0, spread) for _ in range(math.prod(shape)))).tobytes()


def norm(width: int, seed: int) -> Tensor:
    """The weights of a trained norm."""
    rng = random.Random(seed)
    return "F32", (width,), array("f", (rng.uniform(0.5, 1.5) for _ in range(width))).tobytes()


def integers(values: Iterable[int]) -> Tensor:
    """A vector of int64, as `d2t`."""
    values = list(values)
    return "I64", (len(values),), struct.pack(f"<{len(values)}q", *values)


def booleans(values: Iterable[bool]) -> Tensor:
    """A vector of booleans, as `t2d`."""
    values = list(values)
    return "BOOL", (len(values),), bytes(values)


def draft_tokens() -> list[int]:
    """The target tokens that the small draft vocabulary covers: every fourth one, strictly increasing."""
    return [4 * k + 1 for k in range(DRAFT_VOCAB)]


def llama_tensors(states: int = 3, at: str = "midlayer.", prefix: str = "") -> Tensors:
    """A clean Llama-type draft with a reduced vocabulary and no embedding."""
    query = HEADS * HEAD_DIM
    layer = prefix + at
    tokens = draft_tokens()
    return {
        f"{layer}input_layernorm.weight": norm(HIDDEN, 1),
        f"{layer}hidden_norm.weight": norm(HIDDEN, 2),
        f"{layer}post_attention_layernorm.weight": norm(HIDDEN, 3),
        f"{layer}self_attn.q_proj.weight": trained((query, 2 * HIDDEN), 4),
        f"{layer}self_attn.k_proj.weight": trained((query, 2 * HIDDEN), 5),
        f"{layer}self_attn.v_proj.weight": trained((query, 2 * HIDDEN), 6),
        f"{layer}self_attn.o_proj.weight": trained((HIDDEN, query), 7),
        f"{layer}mlp.gate_proj.weight": trained((MLP, HIDDEN), 8),
        f"{layer}mlp.up_proj.weight": trained((MLP, HIDDEN), 9),
        f"{layer}mlp.down_proj.weight": trained((HIDDEN, MLP), 10),
        f"{prefix}fc.weight": trained((HIDDEN, states * HIDDEN), 11),
        f"{prefix}norm.weight": norm(HIDDEN, 12),
        "lm_head.weight": trained((DRAFT_VOCAB, HIDDEN), 13),
        "d2t": integers(token - k for k, token in enumerate(tokens)),
        "t2d": booleans(token in set(tokens) for token in range(VOCAB)),
    }


def mla_tensors(at: str = "layers.0.") -> Tensors:
    """A clean MLA draft with the full vocabulary."""
    out = {name: value for name, value in llama_tensors(at=at).items() if "self_attn" not in name and "2" not in name}
    return out | {
        f"{at}self_attn.q_a_proj.weight": trained((12, 2 * HIDDEN), 20),
        f"{at}self_attn.q_a_layernorm.weight": norm(12, 21),
        f"{at}self_attn.q_b_proj.weight": trained((HEADS * 12, 12), 22),
        f"{at}self_attn.kv_a_proj_with_mqa.weight": trained((16 + 4, 2 * HIDDEN), 23),
        f"{at}self_attn.kv_a_layernorm.weight": norm(16, 24),
        f"{at}self_attn.kv_b_proj.weight": trained((HEADS * (8 + 8), 16), 25),
        f"{at}self_attn.o_proj.weight": trained((HIDDEN, HEADS * 8), 26),
        "lm_head.weight": trained((VOCAB, HIDDEN), 27),
    }


def llama_config(ids: list[int] | None = None, **fields: Any) -> dict[str, Any]:
    """The config of `llama_tensors`, as SpecForge writes it."""
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "num_hidden_layers": 1,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
    }
    if ids is not None:
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True}
    return config | fields


def mla_config(ids: list[int] | None = None, **fields: Any) -> dict[str, Any]:
    """The config of `mla_tensors`, as modelopt's kimik2 template writes it."""
    eagle = {
        "use_aux_hidden_state": True,
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": True,
        "use_mtp_layernorm": False,
    }
    config = llama_config(**{"draft_vocab_size": VOCAB, "model_type": "kimi_k2", **fields})
    config["architectures"] = ["Eagle3DeepseekV2ForCausalLM"]
    config["eagle_config"] = eagle if ids is None else eagle | {"eagle_aux_hidden_state_layer_ids": ids}
    del config["head_dim"]
    return config | {
        "q_lora_rank": 12,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    }


def speculators_config(ids: list[int] | None = None, **fields: Any) -> dict[str, Any]:
    """The config of a speculators draft with `llama_tensors(at="layers.0.")`."""
    layer = llama_config()
    for name in ("architectures", "draft_vocab_size", "tie_word_embeddings"):
        del layer[name]
    config: dict[str, Any] = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.4.0",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
            "verifier": {"name_or_path": "meta-llama/Llama-3.1-8B-Instruct", "architectures": ["LlamaForCausalLM"]},
        },
        "draft_vocab_size": DRAFT_VOCAB,
        "norm_before_residual": False,
        "transformer_layer_config": layer,
    }
    if ids is not None:
        config["eagle_aux_hidden_state_layer_ids"] = ids
    return config | fields


def target_config(architecture: str = "LlamaForCausalLM", layers: int = 32, **fields: Any) -> dict[str, Any]:
    """The config of a plain target in the widths of the drafts."""
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "num_hidden_layers": layers,
        "vocab_size": VOCAB,
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "rope_scaling": None,
    } | fields


def kimi_config(**fields: Any) -> dict[str, Any]:
    """A Kimi-K2.5 target of 61 layers, in small widths."""
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "media_placeholder_token_id": 390,
        "text_config": target_config("DeepseekV3ForCausalLM", 61),
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
        "auto_map": {"AutoConfig": "configuration_kimi_k25.KimiK25Config"},
    } | fields
