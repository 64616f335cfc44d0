"""Throughput of compiled vLLM with a class's own EAGLE-3 hooks against the same class with generated ones.

    PYTHONPATH=tests/vllm/shim:. python benchmarks/vllm_throughput.py [--rounds 3] [--tokens 64]

Llama captures states itself. For the second variant its own capture is taken out of the source and the generated one is
put in before the model is built. Both variants run by turns, each in a process of its own, on the same tiny checkpoint
and draft; the ratio of the median times is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from eagle_adapters.verify.lens import save_lens
from eagle_adapters.verify.reference import reference_states
from eagle_adapters.verify.vllm.checkpoint import save_checkpoint
from eagle_adapters.verify.vllm.session import ENVIRONMENT, Job, run_engine

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROMPTS = [[1, *((i * 37 + k) % 900 + 3 for i in range(20))] for k in range(4)]


def generate_hooks() -> None:
    """Replace Llama's own capturing forward by the generated one."""
    from vllm.model_executor.models.llama import LlamaModel

    from eagle_adapters.backends.vllm.planning import STYLE
    from eagle_adapters.codegen.compile import compile_method
    from eagle_adapters.codegen.instrument import instrument
    from eagle_adapters.codegen.loops import read_forward
    from eagle_adapters.codegen.native import strip
    from eagle_adapters.codegen.residual import read_residual
    from eagle_adapters.codegen.sources import class_source

    source = class_source(LlamaModel)
    method = source.method("forward")
    assert method is not None
    forward = read_forward(strip(method))
    text = instrument(forward, read_residual(forward, source), STYLE).source
    LlamaModel.forward = compile_method(text, "forward", LlamaModel, LlamaModel.forward.__globals__)


def measure(variant: str, folder: Path, tokens: int) -> dict[str, object]:
    """Serve the prompts in this process and say how long the last of three generations took."""
    if variant == "generated":
        generate_hooks()
    outcome = run_engine(
        Job(
            str(folder / "target"),
            PROMPTS,
            draft=str(folder / "draft"),
            max_tokens=tokens,
            options={"enforce_eager": False},
            repeat=3,
        )
    )
    if outcome.error is not None:
        raise SystemExit(outcome.error)
    return {"seconds": outcome.seconds, "tokens": outcome.tokens, "accepted": outcome.accepted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--variant", choices=["native", "generated"])
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.variant:
        print("RESULT " + json.dumps(measure(given.variant, given.folder, given.tokens)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = save_checkpoint(CONFIG, folder / "target")
        ids = model.generate(torch.tensor([PROMPTS[0]]), max_new_tokens=given.tokens, do_sample=False)
        states = reference_states(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, None).states
        vocabulary = CONFIG["vocab_size"]
        save_lens(folder / "draft", ids.tolist(), [states], (2, 4, 5), ids=(2, 4, 5), vocabulary=vocabulary)
        seconds: dict[str, list[float]] = {"native": [], "generated": []}
        tokens = []
        for _ in range(given.rounds):
            for variant, times in seconds.items():
                command = [sys.executable, __file__, "--variant", variant, "--folder", str(folder)]
                environment = {**os.environ, **ENVIRONMENT, "VLLM_DISABLE_COMPILE_CACHE": "1"}
                done = subprocess.run(
                    [*command, "--tokens", str(given.tokens)],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                result = json.loads(done.stdout.rpartition("RESULT ")[2].splitlines()[0])
                times.append(result["seconds"])
                tokens.append(result["tokens"])
        assert all(found == tokens[0] for found in tokens), "the variants generate different tokens"
        ratio = statistics.median(seconds["native"]) / statistics.median(seconds["generated"])
        print(json.dumps({"seconds": seconds, "throughput_ratio": round(ratio, 3)}, indent=1))


if __name__ == "__main__":
    main()
