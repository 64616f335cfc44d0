"""The target of the pair: a small Kimi-K2.5 of the real `transformers` class, trained narrow, then widened exactly.

Engines want the MLA widths of the real model (latent 512, rotary 64), but two cores train a model with such widths at a
third of the speed. So the training runs with small widths, and `widen` pads them with zeros: the same function, in the
engines' shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eagle_adapters.testing.pair import corpus

VOCAB = 320
"""256 bytes, then special tokens, then unused rows."""

BOS, EOS, PAD, IMAGE, VIDEO, VISION_START, VISION_END = range(256, 263)

Progress = Callable[[str, int, int, float], None]
"""Called with the stage, the step, the number of steps, and the loss."""


@dataclass(frozen=True, slots=True)
class Widths:
    """The widths of multi-head latent attention."""

    latent: int
    rotary: int
    plain: int
    value: int


NARROW = Widths(latent=64, rotary=16, plain=16, value=32)
ENGINE = Widths(latent=512, rotary=64, plain=64, value=64)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one half of the pair is trained.

    Attributes:
        steps: optimiser steps.
        batch: sequences a step.
        length: bytes a sequence.
        rate: the peak learning rate.
        seed: of the weights and of the batches.
    """

    steps: int
    batch: int
    length: int
    rate: float
    seed: int


def config(widths: Widths, *, hidden: int, layers: int) -> Any:
    """The config of the target."""
    from transformers import Kimi_K25Config

    text = {
        "model_type": "deepseek_v3",
        "architectures": ["DeepseekV3ForCausalLM"],
        "vocab_size": VOCAB,
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "moe_intermediate_size": hidden // 2,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "n_shared_experts": 1,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.0,
        "norm_topk_prob": True,
        "q_lora_rank": 64,
        "kv_lora_rank": widths.latent,
        "qk_rope_head_dim": widths.rotary,
        "qk_nope_head_dim": widths.plain,
        "v_head_dim": widths.value,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "max_position_embeddings": 2048,
        "num_nextn_predict_layers": 0,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }
    vision = {"num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128}
    out = Kimi_K25Config(
        text_config=text,
        vision_config=vision,
        projection_hidden_size=64,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        tie_word_embeddings=False,
    )
    # The loop over experts is the fastest form on a CPU.
    out.text_config._experts_implementation = "eager"
    return out


def build(widths: Widths, *, hidden: int, layers: int, seed: int) -> Any:
    """An untrained target in float32."""
    import torch
    from transformers import Kimi_K25ForConditionalGeneration

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Kimi_K25ForConditionalGeneration(config(widths, hidden=hidden, layers=layers)).float()


def train(model: Any, recipe: Recipe, progress: Progress) -> Any:
    """Teach `model` the next byte of the training text, in place, and return it ready for use."""
    from torch.nn.functional import cross_entropy

    parameters = [
        p for name, p in model.named_parameters() if "vision_tower" not in name and "mm_projector" not in name
    ]
    stream = corpus.batches(corpus.training_text(), recipe.batch, recipe.length, recipe.seed)
    model.train()

    def loss() -> Any:
        ids = next(stream)
        logits = model(input_ids=ids, use_cache=False).logits
        return cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    descend(parameters, loss, recipe, "target", progress)
    return model.eval().requires_grad_(False)


def descend(parameters: list[Any], loss: Callable[[], Any], recipe: Recipe, stage: str, progress: Progress) -> None:
    """AdamW with a short warm-up and a linear end."""
    import torch

    optimiser = torch.optim.AdamW(parameters, lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(recipe.steps):
        left = 1 - step / recipe.steps
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * min(1.0, (step + 1) / 20, left / 0.6)
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        progress(stage, step + 1, recipe.steps, float(value.detach()))


def widen(model: Any, *, hidden: int, layers: int) -> Any:
    """The same function as `model` with the attention widths of `ENGINE`; only the epsilon of one norm weighs less."""
    import torch

    wide = build(ENGINE, hidden=hidden, layers=layers, seed=0).eval().requires_grad_(False)
    weights = model.state_dict()
    heads = model.config.text_config.num_attention_heads
    # The rotary pair 2i of the narrow head turns as fast as the pair 2 * i * stride of the wide one.
    stride = ENGINE.rotary // NARROW.rotary
    pairs = torch.arange(NARROW.rotary // 2) * stride
    rotary = torch.stack([2 * pairs, 2 * pairs + 1], dim=-1).flatten()
    query = torch.cat([torch.arange(NARROW.plain), ENGINE.plain + rotary])
    both = torch.cat([torch.arange(NARROW.plain), ENGINE.plain + torch.arange(NARROW.value)])
    latent = torch.arange(NARROW.latent)
    rows = {
        "q_b_proj.weight": _per_head(query, heads, ENGINE.plain + ENGINE.rotary),
        "kv_a_proj_with_mqa.weight": torch.cat([latent, ENGINE.latent + rotary]),
        "kv_a_layernorm.weight": latent,
        "kv_b_proj.weight": _per_head(both, heads, ENGINE.plain + ENGINE.value),
    }
    columns = {
        "kv_b_proj.weight": latent,
        "o_proj.weight": _per_head(torch.arange(NARROW.value), heads, ENGINE.value),
    }
    scales = {
        "q_b_proj.weight": ((ENGINE.plain + ENGINE.rotary) / (NARROW.plain + NARROW.rotary)) ** 0.5,
        "kv_a_layernorm.weight": (NARROW.latent / ENGINE.latent) ** 0.5,
    }
    for name, parameter in wide.state_dict().items():
        part = name.rpartition("self_attn.")[2]
        source = weights[name] * scales.get(part, 1.0)
        if part in rows or part in columns:
            row = rows.get(part, torch.arange(len(source)))
            place = (row,) if source.dim() == 1 else (row[:, None], columns.get(part, torch.arange(source.shape[1])))
            parameter.zero_()[place] = source
        else:
            parameter.copy_(source)
    return wide


def _per_head(within: Any, heads: int, width: int) -> Any:
    import torch

    return (torch.arange(heads)[:, None] * width + within).flatten()
