"""The drafter against a second computation, over every variant of a draft."""

from __future__ import annotations

import cmath
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from eagle_adapters.drafts.keys import Layout, write
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.errors import DataError
from eagle_adapters.speculation.drafter import Memory, load_drafter

HIDDEN, TARGET_HIDDEN, HEADS, VOCAB, DRAFT_VOCAB = 32, 32, 4, 60, 24

GQA = {"num_key_value_heads": 2, "head_dim": 8}
MLA = {
    "kv_lora_rank": 12,
    "q_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 8,
    "v_head_dim": 7,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 64,
    "mscale": 1.0,
    "mscale_all_dim": 0.7,
}


def config(**changes: Any) -> dict[str, Any]:
    """A config.json of a draft; `changes` with None take a field out."""
    mla = "kv_lora_rank" in changes
    fields: dict[str, Any] = {
        "architectures": ["Eagle3DeepseekV2ForCausalLM" if mla else "LlamaForCausalLMEagle3"],
        "model_type": "kimi_k2" if mla else "llama",
        "hidden_size": HIDDEN,
        "target_hidden_size": TARGET_HIDDEN,
        "intermediate_size": 40,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
        "max_position_embeddings": 256,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
    }
    fields |= changes if mla else {**GQA, **changes}
    return {name: value for name, value in fields.items() if value is not None}


def write_draft(folder: Path, *, embedding: bool = True, head: bool = True, seed: int = 0, **changes: Any) -> Path:
    """A random draft checkpoint; its tensors are the ones its own spec requires."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = config(**changes)
    (folder / "config.json").write_text(json.dumps(fields))
    spec = read_draft(folder / "config.json")
    shapes = {name: shape for name, shape in spec.required_tensors().items() if shape is not None}
    if embedding:
        shapes["embed_tokens.weight"] = (VOCAB, HIDDEN)
    if head:
        shapes["lm_head.weight"] = (spec.draft_vocab_size, HIDDEN)
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        weights[name] = noise / shape[-1] ** 0.5 if len(shape) > 1 else 1 + 0.3 * noise
    if spec.draft_vocab_size != VOCAB:
        ids = torch.randperm(VOCAB, generator=generator)[: spec.draft_vocab_size].sort().values
        known = torch.zeros(VOCAB, dtype=torch.bool)
        known[ids] = True
        weights |= {"d2t": ids - torch.arange(len(ids)), "t2d": known}
    save_file(weights, folder / "model.safetensors")
    return folder


class StubTarget:
    """As much of a target as a drafter needs: an embedding and a head."""

    def __init__(self, vocabulary: int = VOCAB, hidden: int = TARGET_HIDDEN) -> None:
        generator = torch.Generator().manual_seed(99)
        self.embedding = torch.nn.Embedding(vocabulary, hidden)
        self.head = torch.nn.Linear(hidden, vocabulary, bias=False)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.randn(vocabulary, hidden, generator=generator))
            self.head.weight.copy_(torch.randn(vocabulary, hidden, generator=generator))

    def get_input_embeddings(self) -> Any:
        return self.embedding

    def get_output_embeddings(self) -> Any:
        return self.head


# A draft step written a second time, straight from the engines' sources: one row, one head, one position at a time. It
# shares no code with the product: loops instead of tensors of all positions, complex numbers instead of cos and sin.


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean() + eps) * weight


def yarn_frequencies(width: int, theta: float, rope: dict[str, Any]) -> list[float]:
    """arXiv 2309.00071, as vllm 0.32.0 `rotary_embedding/common.py` computes it."""
    old = rope["original_max_position_embeddings"]

    def turns_at(turns: float) -> float:
        return width * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(turns_at(rope["beta_fast"])), 0)
    high = min(math.ceil(turns_at(rope["beta_slow"])), width - 1)
    out = []
    for i in range(width // 2):
        plain = theta ** (-2 * i / width)
        share = 1 - min(max((i - low) / (high - low), 0), 1)
        out.append(plain * share + plain / rope["factor"] * (1 - share))
    return out


def mscale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1


class Recomputed:
    """A draft over one growing sequence."""

    def __init__(self, folder: Path, fields: dict[str, Any], target: Any) -> None:
        weights = load_file(folder / "model.safetensors")
        self.w = {name: tensor.double() for name, tensor in weights.items()}
        self.w.setdefault("embed_tokens.weight", target.embedding.weight.detach().double())
        self.w.setdefault("lm_head.weight", target.head.weight.detach().double())
        self.f, self.eps, self.past = fields, fields["rms_norm_eps"], []
        self.mla = "kv_lora_rank" in fields
        rope = fields.get("rope_scaling") or {}
        width = fields["qk_rope_head_dim"] if self.mla else fields["head_dim"]
        theta = fields["rope_theta"]
        self.turn_scale = self.score_scale = 1.0
        if rope:
            self.frequencies = yarn_frequencies(width, theta, rope)
            self.turn_scale = mscale(rope["factor"], rope["mscale"]) / mscale(rope["factor"], rope["mscale_all_dim"])
            self.score_scale = mscale(rope["factor"], rope["mscale_all_dim"]) ** 2
        else:
            self.frequencies = [theta ** (-2 * i / width) for i in range(width // 2)]

    def rotate(self, x: Tensor, position: int, pairs: list[tuple[int, int]]) -> Tensor:
        out = torch.empty_like(x)
        for (a, b), frequency in zip(pairs, self.frequencies, strict=True):
            turned = complex(x[a], x[b]) * cmath.exp(1j * position * frequency) * self.turn_scale
            out[a], out[b] = turned.real, turned.imag
        return out

    def combine(self, states: list[Tensor]) -> Tensor:
        if self.f.get("norm_before_fc"):
            return self.w["fc.weight"] @ rms(torch.cat(states), self.w["input_norm.weight"], self.eps)
        if self.f.get("fc_norm"):
            states = [rms(s, self.w[f"fc_norm.{k}.weight"], self.eps) for k, s in enumerate(states)]
        return self.w["fc.weight"] @ torch.cat(states)

    def step(self, token: int, state: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """Scores over the draft's vocabulary, and the state to feed back."""
        w, at = self.w, "layers.0."
        normed = rms(state, w[at + "hidden_norm.weight"], self.eps)
        x = torch.cat([rms(w["embed_tokens.weight"][token], w[at + "input_layernorm.weight"], self.eps), normed])
        residual = normed if self.f.get("norm_before_residual") else state
        residual = residual + (self.latent(x, position) if self.mla else self.grouped(x, position))
        y = rms(residual, w[at + "post_attention_layernorm.weight"], self.eps)
        gate = w[at + "mlp.gate_proj.weight"] @ y
        residual = residual + w[at + "mlp.down_proj.weight"] @ (
            gate / (1 + torch.exp(-gate)) * (w[at + "mlp.up_proj.weight"] @ y)
        )
        out = rms(residual, w["norm.weight"], self.eps)
        return w["lm_head.weight"] @ out, out if self.f.get("norm_output") else residual

    def grouped(self, x: Tensor, position: int) -> Tensor:
        w, at, d = self.w, "layers.0.self_attn.", self.f["head_dim"]
        heads, pairs = self.f["num_attention_heads"], self.f["num_key_value_heads"]
        halves = [(i, i + d // 2) for i in range(d // 2)]
        keys = (w[at + "k_proj.weight"] @ x).view(pairs, d)
        values = (w[at + "v_proj.weight"] @ x).view(pairs, d)
        self.past.append(([self.rotate(key, position, halves) for key in keys], values))
        queries = (w[at + "q_proj.weight"] @ x).view(heads, d)
        mixed = []
        for head, query in enumerate(queries):
            own = head * pairs // heads
            turned = self.rotate(query, position, halves)
            scores = torch.stack([turned @ key[own] for key, _ in self.past]) / math.sqrt(d)
            mixed.append(sum(p * value[own] for p, (_, value) in zip(scores.softmax(0), self.past, strict=True)))
        return w[at + "o_proj.weight"] @ torch.cat(mixed)

    def latent(self, x: Tensor, position: int) -> Tensor:
        w, at, f = self.w, "layers.0.self_attn.", self.f
        nope, rope, heads = f["qk_nope_head_dim"], f["qk_rope_head_dim"], f["num_attention_heads"]
        pairs = [(2 * i, 2 * i + 1) for i in range(rope // 2)]
        if f.get("q_lora_rank"):
            low = rms(w[at + "q_a_proj.weight"] @ x, w[at + "q_a_layernorm.weight"], self.eps)
            queries = (w[at + "q_b_proj.weight"] @ low).view(heads, nope + rope)
        else:
            queries = (w[at + "q_proj.weight"] @ x).view(heads, nope + rope)
        packed = w[at + "kv_a_proj_with_mqa.weight"] @ x
        latent = rms(packed[: f["kv_lora_rank"]], w[at + "kv_a_layernorm.weight"], self.eps)
        both = (w[at + "kv_b_proj.weight"] @ latent).view(heads, nope + f["v_head_dim"])
        self.past.append((both, self.rotate(packed[f["kv_lora_rank"] :], position, pairs)))
        mixed = []
        for head, query in enumerate(queries):
            turned = self.rotate(query[nope:], position, pairs)
            scores = [query[:nope] @ kv[head, :nope] + turned @ key for kv, key in self.past]
            weights = (torch.stack(scores) / math.sqrt(nope + rope) * self.score_scale).softmax(0)
            mixed.append(sum(p * kv[head, nope:] for p, (kv, _) in zip(weights, self.past, strict=True)))
        return w[at + "o_proj.weight"] @ torch.cat(mixed)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "yarn": {"rope_scaling": YARN},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "eagle 3.1": {"fc_norm": True, "norm_output": True},
    "full vocabulary": {"draft_vocab_size": VOCAB},
    "narrow": {"hidden_size": 16, "head_dim": 4},
    "two states": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3]}},
    "mla": MLA,
    "mla yarn": {**MLA, "rope_scaling": YARN},
    "mla without q rank": {**MLA, "q_lora_rank": None},
    "mla eagle 3.1": {**MLA, "fc_norm": True, "norm_output": True},
}


def draft_of(folder: Path, changes: dict[str, Any], **sharing: bool) -> tuple[Any, Recomputed, StubTarget]:
    target = StubTarget()
    if changes.get("hidden_size"):
        own = {"embed": (VOCAB, changes["hidden_size"])}
        write_draft(folder, embedding=False, head=False, **changes)
        weights = load_file(folder / "model.safetensors")
        generator = torch.Generator().manual_seed(5)
        weights["embed_tokens.weight"] = torch.randn(own["embed"], generator=generator)
        weights["lm_head.weight"] = torch.randn(24, changes["hidden_size"], generator=generator)
        save_file(weights, folder / "model.safetensors")
    else:
        write_draft(folder, **sharing, **changes)
    drafter = load_drafter(folder, target, dtype=torch.float64)
    return drafter, Recomputed(folder, config(**changes), target), target


def compare(drafter: Any, second: Recomputed, *, states: int, prompt: int = 5, ahead: int = 3) -> float:
    """Read a prompt at once, then draft `ahead` tokens; the largest difference of any score."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(VOCAB, (1, prompt), generator=generator)
    captured = [torch.randn(1, prompt, TARGET_HIDDEN, generator=generator, dtype=torch.float64) for _ in range(states)]
    memory = Memory()
    visible = torch.ones(prompt, prompt, dtype=torch.bool).tril()[None]
    out, fed = drafter(tokens, drafter.combine(captured), torch.arange(prompt)[None], visible, memory)
    worst = 0.0
    for t in range(prompt):
        scores, back = second.step(int(tokens[0, t]), second.combine([c[0, t] for c in captured]), t)
        worst = max(worst, float((drafter.logits(out)[0, t] - scores).abs().max()))
    out, fed = out[:, -1:], fed[:, -1:]
    for step in range(ahead):
        token = drafter.target_ids(drafter.logits(out)[0, 0].argmax())
        visible = torch.ones(1, 1, prompt + step + 1, dtype=torch.bool)
        out, fed = drafter(token[None, None], fed, torch.tensor([[prompt + step]]), visible, memory)
        scores, back = second.step(int(token), back, prompt + step)
        worst = max(worst, float((drafter.logits(out)[0, 0] - scores).abs().max()))
        worst = max(worst, float((fed[0, 0] - back).abs().max()))
    return worst


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_agrees_with_a_second_computation(name: str, tmp_path: Path) -> None:
    drafter, second, _ = draft_of(tmp_path / "draft", VARIANTS[name])
    # The frequencies of yarn come from transformers in float32; the rest is float64.
    assert compare(drafter, second, states=drafter.spec.num_aux) < (2e-4 if "yarn" in name else 1e-5)


@pytest.mark.parametrize("changes", [{"draft_vocab_size": VOCAB}, {**MLA, "draft_vocab_size": VOCAB}])
def test_a_draft_without_embedding_and_head_uses_those_of_the_target(changes: dict[str, Any], tmp_path: Path) -> None:
    drafter, second, target = draft_of(tmp_path / "draft", changes, embedding=False, head=False)
    assert compare(drafter, second, states=3) < 1e-5
    assert torch.equal(drafter.embed_tokens.weight.float(), target.embedding.weight)


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft", head=False, draft_vocab_size=VOCAB, tie_word_embeddings=True)
    drafter = load_drafter(folder, StubTarget())
    assert torch.equal(drafter.lm_head.weight, drafter.embed_tokens.weight)


def test_flags_change_what_is_drafted(tmp_path: Path) -> None:
    plain, _, _ = draft_of(tmp_path / "plain", {})
    second = Recomputed(tmp_path / "plain", config(norm_before_residual=True), StubTarget())
    assert compare(plain, second, states=3) > 0.1


@pytest.mark.parametrize("layout", ["midlayer", "prefixed"])
@pytest.mark.parametrize("kind", ["gqa", "mla"])
def test_every_naming_of_the_same_tensors_gives_the_same_draft(layout: str, kind: str, tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "a", **(MLA if kind == "mla" else {}))
    other = tmp_path / "b"
    other.mkdir()
    (other / "config.json").write_text((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    save_file({write(n, Layout(layout)): t for n, t in weights.items()}, other / "model.safetensors")
    one, two = (load_drafter(f, StubTarget()).state_dict() for f in (folder, other))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_vocabulary_map_spreads_probabilities_over_the_target(tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "draft")
    drafter = load_drafter(folder, StubTarget())
    weights = load_file(folder / "model.safetensors")
    out = torch.randn(2, HIDDEN)
    spread = drafter.probabilities(out, 0.7, VOCAB)
    own = (drafter.logits(out) / 0.7).softmax(-1)
    assert torch.equal((spread > 0).any(0), weights["t2d"])
    torch.testing.assert_close(spread[:, weights["t2d"]], own)


def broken(folder: Path, **tensors: Any) -> Path:
    weights = load_file(folder / "model.safetensors")
    weights |= {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    weights = {name: tensor for name, tensor in weights.items() if tensor is not None}
    save_file(weights, folder / "model.safetensors")
    return folder


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    folder = broken(write_draft(tmp_path / "a"), norm__weight=None, layers__0__mlp__up_proj__weight=torch.zeros(3, 3))
    with pytest.raises(DataError, match="EA802") as caught:
        load_drafter(folder, StubTarget())
    assert "norm.weight" in str(caught.value)
    assert "[3, 3]" in str(caught.value)


@pytest.mark.parametrize("offsets", [torch.zeros(24, dtype=torch.long) + 50, -torch.arange(24)])
def test_a_vocabulary_map_that_does_not_fit_is_refused(offsets: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="EA803"):
        load_drafter(broken(write_draft(tmp_path / "a"), d2t=offsets), StubTarget())


def test_a_target_of_another_width_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="EA803"):
        load_drafter(write_draft(tmp_path / "a"), StubTarget(hidden=48))


@pytest.mark.parametrize(
    "changes",
    [{"eagle_config": {"use_aux_hidden_state": False}}, {"partial_rotary_factor": 0.5}],
)
def test_what_cannot_be_computed_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = write_draft(tmp_path / "a")
    (folder / "config.json").write_text(json.dumps(config(**changes)))
    with pytest.raises(DataError, match="EA801"):
        load_drafter(folder, StubTarget())
