"""Time `inspect_model` on a full-size Kimi-K2.5 skeleton on the meta device: 61 layers with 384 and with 8 experts.

Run: `python benchmarks/introspection.py`. The experts are separate modules, as engines and checkpoints hold them
(transformers 5.19.0 fuses them, which would make the walk look better than it is).
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from eagle_adapters.introspect import inspect_model

HIDDEN, EXPERT, VOCABULARY, LAYERS = 7168, 2048, 163840, 61


class Mlp(nn.Module):
    """Gate, up, down."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, width, bias=False)
        self.up_proj = nn.Linear(HIDDEN, width, bias=False)
        self.down_proj = nn.Linear(width, HIDDEN, bias=False)


class Moe(nn.Module):
    """Router, routed experts, shared expert."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(HIDDEN, experts, bias=False)
        self.experts = nn.ModuleList([Mlp(EXPERT) for _ in range(experts)])
        self.shared_experts = Mlp(EXPERT)


class Attention(nn.Module):
    """The projections of multi-head latent attention."""

    def __init__(self) -> None:
        super().__init__()
        self.q_a_proj = nn.Linear(HIDDEN, 1536, bias=False)
        self.q_b_proj = nn.Linear(1536, 64 * 192, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(HIDDEN, 576, bias=False)
        self.kv_b_proj = nn.Linear(512, 64 * 256, bias=False)
        self.o_proj = nn.Linear(64 * 128, HIDDEN, bias=False)


class Layer(nn.Module):
    """One decoder layer; the first is dense."""

    def __init__(self, index: int, experts: int) -> None:
        super().__init__()
        self.self_attn = Attention()
        self.mlp = Mlp(18432) if index == 0 else Moe(experts)
        self.input_layernorm = nn.RMSNorm(HIDDEN)
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN)


class Decoder(nn.Module):
    """The text decoder."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList([Layer(index, experts) for index in range(LAYERS)])
        self.norm = nn.RMSNorm(HIDDEN)


class Tower(nn.Module):
    """The vision tower: 27 blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 1152, 14)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(1152, 16) for _ in range(27)])


class CausalLM(nn.Module):
    """Decoder and head."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.model = Decoder(experts)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)


class KimiK25(nn.Module):
    """Tower, projector, language model."""

    def __init__(self, experts: int) -> None:
        super().__init__()
        self.vision_tower = Tower()
        self.mm_projector = nn.Sequential(nn.Linear(4608, 4608), nn.GELU(), nn.Linear(4608, HIDDEN))
        self.language_model = CausalLM(experts)


def inspect_ms(model: nn.Module) -> float:
    """The time of one inspection, in milliseconds."""
    start = time.perf_counter()
    anatomy = inspect_model(model)
    took = (time.perf_counter() - start) * 1e3
    assert anatomy.decoder.path == "language_model.model"
    assert anatomy.num_layers is not None
    assert anatomy.num_layers.value == LAYERS
    return took


def main(runs: int = 200) -> None:
    """Print both medians and their ratio; both models are in memory, so that garbage collection costs the same."""
    with torch.device("meta"):
        models = {experts: KimiK25(experts) for experts in (384, 8)}
    times: dict[int, list[float]] = {experts: [] for experts in models}
    for _ in range(runs):
        for experts, model in models.items():
            times[experts].append(inspect_ms(model))
    medians = {experts: statistics.median(took) for experts, took in times.items()}
    for experts, model in models.items():
        print(f"{experts:>3} experts, {sum(1 for _ in model.modules()):>6} modules: {medians[experts]:.2f} ms")
    print(f"ratio {medians[384] / medians[8]:.2f}")


if __name__ == "__main__":
    main()
