"""How long `eagle-adapters check` takes on a Kimi-K2.5-size target config and draft, as a process and in one.

The target has the config and the weight index of the real model (61 layers, 384 experts, about 70,000 tensors), the
draft the real shapes (7168 wide, a file of 4.5 GB). Its values are a hole in a sparse file with numbers where the
audits look, so that it takes no space; what is read of it is what is read of a real one.

Both the time on the clock and the processor time are printed; the limit is for the processor time, which other
load on the machine hardly changes. On an idle machine the two are the same, as nothing waits.

    python benchmarks/check.py [--limit 1.0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from eagle_adapters.drafts.check import check_draft
from eagle_adapters.drafts.header import read_header
from eagle_adapters.testing.checkpoints import booleans, integers, kimi_config, write_safetensors, write_sparse

LAYERS, HIDDEN, MLP, VOCAB, DRAFT_VOCAB = 61, 7168, 18432, 163840, 32000


def main() -> int:
    """Measure, print, and fail above the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=1.0, help="processor seconds that the command may take")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        target, draft = write_target(Path(folder) / "target"), write_draft(Path(folder) / "draft")
        verdict = check_draft(target, draft, "sglang")
        inside = [seconds(lambda: check_draft(target, draft, "sglang")) for _ in range(options.runs)]
        command = [sys.executable, "-m", "eagle_adapters", "check", str(target), "--draft", str(draft)]
        command += ["--engine", "sglang", "--format", "json"]
        outside = [
            seconds(lambda: subprocess.run(command, capture_output=True, check=False)) for _ in range(options.runs)
        ]
    print(f"verdict {verdict.verdict}, boundaries {[int(b) for b in verdict.boundaries or ()]}")
    for name, times in (("check_draft", inside), ("the command", outside)):
        clock, processor = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{name}: {processor:.3f} s of processor time, {clock:.3f} s on the clock (median of {len(times)})")
    return 0 if processor < options.limit else 1


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Clock and processor seconds, those of child processes included."""
    clock, processor = time.perf_counter(), sum(os.times()[:4])
    call()
    return time.perf_counter() - clock, sum(os.times()[:4]) - processor


def write_target(folder: Path) -> Path:
    folder.mkdir()
    config = kimi_config(media_placeholder_token_id=163605)
    config["text_config"] |= {"hidden_size": HIDDEN, "vocab_size": VOCAB, "max_position_embeddings": 262144}
    (folder / "config.json").write_text(json.dumps(config))
    parts = ("gate_proj", "up_proj", "down_proj")
    names = [
        f"language_model.model.layers.{layer}.mlp.experts.{expert}.{part}.weight_packed"
        for layer in range(LAYERS)
        for expert in range(384)
        for part in parts
    ]
    weight_map = {name: f"model-{k % 64:05}.safetensors" for k, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def write_draft(folder: Path) -> Path:
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "head_dim": 128,
        "num_hidden_layers": 1,
        "max_position_embeddings": 262144,
        "rope_theta": 1000000.0,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "use_aux_hidden_state": True},
    }
    (folder / "config.json").write_text(json.dumps(config))
    attention = {f"midlayer.self_attn.{p}_proj.weight": (8192, 2 * HIDDEN) for p in "qkv"}
    path = write_sparse(
        folder / "model.safetensors",
        {
            **{
                f"midlayer.{n}.weight": (HIDDEN,)
                for n in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
            },
            **attention,
            "midlayer.self_attn.o_proj.weight": (HIDDEN, 8192),
            "midlayer.mlp.gate_proj.weight": (MLP, HIDDEN),
            "midlayer.mlp.up_proj.weight": (MLP, HIDDEN),
            "midlayer.mlp.down_proj.weight": (HIDDEN, MLP),
            "fc.weight": (HIDDEN, 3 * HIDDEN),
            "norm.weight": (HIDDEN,),
            "embed_tokens.weight": (VOCAB, HIDDEN),
            "lm_head.weight": (DRAFT_VOCAB, HIDDEN),
        },
    )
    fill(path)
    tokens = [5 * k for k in range(DRAFT_VOCAB)]
    maps = {"d2t": integers(token - k for k, token in enumerate(tokens))}
    chosen = set(tokens)
    maps["t2d"] = booleans(token in chosen for token in range(VOCAB))
    write_safetensors(folder / "maps.safetensors", maps)
    return folder


def fill(path: Path) -> None:
    """Numbers of uneven spread in 64 places of every tensor, where a sample looks."""
    rng = random.Random(0)
    header = read_header(path)
    with path.open("r+b") as stream:
        for tensor in header.tensors.values():
            width = min(1024, tensor.size)
            step = max((tensor.size - width) // 63, 0)
            for place in range(64):
                spread = rng.choice((0x3C, 0x3B, 0xBC, 0xBA))
                stream.seek(tensor.start + 2 * place * step)
                stream.write(bytes(b for _ in range(width) for b in (rng.randrange(256), spread)))


if __name__ == "__main__":
    sys.exit(main())
