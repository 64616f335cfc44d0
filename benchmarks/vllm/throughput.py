"""Decode throughput of compiled vLLM: a class's own EAGLE-3 hooks against generated ones on the same class.

Llama captures states itself. For the second variant its own capture is taken out of its forward, and the forward is
generated from what is left, before the model is built. Each variant is served by a process of its own; both stay up and
generate by turns, so that a busy moment of the machine falls on both. Printed are the ratio of the throughputs, the
median over the rounds, its quartiles, and the load of the machine.

    make bench-vllm, or: .venv-vllm/bin/python benchmarks/vllm/throughput.py [--rounds 20] [--tokens 48]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from eagle_adapters.verify.vllm.session import ENVIRONMENT

VARIANTS = ("native", "generated")
BOUNDARIES = (2, 4, 5)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1000,
    # wide enough for the layers, not the engine around them, to take most of a step
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
PROMPTS = [[1, *((i * 37 + k) % 900 + 3 for i in range(20))] for k in range(4)]


def generate_hooks() -> None:
    """Replace Llama's own capturing forward by one generated from it without its capture."""
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


def write_pair(folder: Path, tokens: int) -> None:
    """A random target, and a draft that is right for its first prompt."""
    import torch

    from eagle_adapters.verify.lens import save_lens
    from eagle_adapters.verify.reference import reference_states
    from eagle_adapters.verify.vllm.checkpoint import save_checkpoint

    model = save_checkpoint(CONFIG, folder / "target")
    ids = model.generate(torch.tensor([PROMPTS[0]]), max_new_tokens=tokens, do_sample=False)
    states = reference_states(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, None).states
    save_lens(folder / "draft", ids.tolist(), [states], BOUNDARIES, ids=BOUNDARIES, vocabulary=1000)


def serve(variant: str, folder: Path, tokens: int) -> None:
    """Start the engine, then generate once for every line read, and answer with the seconds and the tokens."""
    from vllm import LLM, SamplingParams

    if variant == "generated":
        generate_hooks()
    llm = LLM(
        str(folder / "target"),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=256,
        max_num_seqs=4,
        enable_prefix_caching=False,
        disable_log_stats=False,
        speculative_config={"method": "eagle3", "model": str(folder / "draft"), "num_speculative_tokens": 2},
    )
    sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    prompts: Any = [{"prompt_token_ids": ids} for ids in PROMPTS]
    for _ in sys.stdin:
        start = time.perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        counters = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
        answer = {
            "seconds": seconds,
            "tokens": [list(output.outputs[0].token_ids) for output in outputs],
            "accepted": counters["vllm:spec_decode_num_accepted_tokens"],
        }
        print("RESULT " + json.dumps(answer), flush=True)


def ask(process: subprocess.Popen[str]) -> dict[str, Any]:
    """One generation."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("RESULT "):
            answer: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
            return answer
    raise SystemExit(f"{process.args} ended with code {process.wait()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--serve", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.folder, given.tokens)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_pair(folder, given.tokens)
        environment = {**os.environ, **ENVIRONMENT, "VLLM_DISABLE_COMPILE_CACHE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        command = [sys.executable, __file__, "--folder", str(folder), "--tokens", str(given.tokens)]
        engines = {
            variant: subprocess.Popen(
                [*command, "--serve", variant],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for variant in VARIANTS
        }
        try:
            first = {variant: ask(engine) for variant, engine in engines.items()}  # starts them, and warms up
            ratios = []
            for round_ in range(given.rounds):
                order = VARIANTS if round_ % 2 else VARIANTS[::-1]
                found = {variant: ask(engines[variant]) for variant in order}
                assert all(found[variant]["tokens"] == first["native"]["tokens"] for variant in VARIANTS)
                ratios.append(found["native"]["seconds"] / found["generated"]["seconds"])
            accepted = {found[variant]["accepted"] for variant in VARIANTS}
            assert len(accepted) == 1, f"the variants accept different numbers of tokens: {accepted}"
        finally:
            for engine in engines.values():
                engine.kill()
                engine.wait()
    low, middle, high = statistics.quantiles(ratios, n=4)
    speed = len(PROMPTS) * given.tokens / found["native"]["seconds"]
    print(f"throughput with generated hooks / with native hooks: {middle:.3f} (quartiles {low:.3f} to {high:.3f})")
    print(f"{given.rounds} rounds, equal tokens, {speed:.0f} tokens/s natively, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
