"""One process that runs real vLLM engines one after the other, as told by JSON lines on its standard input."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eagle_adapters.verify.process import EngineProcess

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""What every engine process runs under; a session may add to it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One engine: which target and draft, what to generate, what to look at.

    Attributes:
        model: folder of the target.
        prompts: token ids, one list a prompt.
        draft: folder of the draft, or None for a run without speculation.
        max_tokens: generated for every prompt, greedily.
        options: further arguments of `vllm.LLM`.
        speculation: further entries of the speculative config.
        observe: folder for what the drafter is handed, or None.
        repeat: how often the prompts are generated (the second time meets the prefix cache).
        pictures: for each prompt the file of its one picture; without any, only text is served.
        modality: what the target calls a picture.
        environment: variables for this engine alone.
    """

    model: str
    prompts: Sequence[Sequence[int]]
    draft: str | None = None
    max_tokens: int = 12
    options: Mapping[str, Any] = field(default_factory=dict)
    speculation: Mapping[str, Any] = field(default_factory=dict)
    observe: str | None = None
    repeat: int = 1
    pictures: Sequence[str] = ()
    modality: str = "image"
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an engine did.

    Attributes:
        tokens: generated ids, one list a prompt (of the last repetition).
        drafted: tokens proposed by the draft.
        accepted: tokens of these that the target kept.
        rounds: how often the draft proposed something.
        workers: what `Observer.adapted` said in each worker.
        error: `Type: text` when the engine failed, else None.
        cached: prompt tokens that came out of the prefix cache.
        seconds: wall time of the last generation.
    """

    tokens: list[list[int]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    rounds: int = 0
    workers: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    cached: int = 0
    seconds: float = 0.0


class Session(EngineProcess):
    """A process with vLLM in it, used as a context manager."""

    def __init__(self, environment: Mapping[str, str] | None = None, log: Path | None = None) -> None:
        """Start the process.

        Args:
            environment: variables on top of the present ones and of `ENVIRONMENT`.
            log: file for everything the engines say; thrown away when None.
        """
        super().__init__(__name__, {**ENVIRONMENT, **(environment or {})}, log)

    def run(self, job: Job) -> Outcome:
        """Run one engine to its end and say what it did.

        Raises:
            ChildProcessError: the process died.
        """
        return Outcome(**json.loads(self.ask(json.dumps(asdict(job)))))


def run_engine(job: Job) -> Outcome:
    """Run one engine in this process; an engine that fails is an outcome with its error."""
    import time

    from vllm import LLM, SamplingParams

    from eagle_adapters.verify.vllm.observer import EXTENSION
    from eagle_adapters.verify.vllm.picture import shown

    options: dict[str, Any] = {
        "skip_tokenizer_init": not job.pictures,  # whoever lays out a picture asks for its placeholder
        "dtype": "float32",
        "max_model_len": 256,
        "max_num_seqs": 4,
        "enforce_eager": True,
        "disable_log_stats": False,
        "enable_prefix_caching": False,
        "seed": 0,
        # with vLLM 0.32.0's compiled CPU operators, float32 states of the DeepSeek family differ from transformers'
        "compilation_config": {"custom_ops": ["none"]},
        "worker_extension_cls": EXTENSION,
        **job.options,
    }
    if job.draft is not None:
        options["speculative_config"] = {
            "method": "eagle3",
            "model": job.draft,
            "num_speculative_tokens": 2,
            **job.speculation,
        }
    llm = None
    before = dict(os.environ)
    os.environ.update(job.environment)
    try:
        llm = LLM(job.model, **options)
        if job.observe is not None:
            llm.collective_rpc("observe", args=(job.observe,))
        sampling = SamplingParams(temperature=0, max_tokens=job.max_tokens, ignore_eos=True, detokenize=False)
        prompts: Any = [{"prompt_token_ids": list(ids)} for ids in job.prompts]
        for prompt, file in zip(prompts, job.pictures, strict=False):
            prompt["multi_modal_data"] = shown(file, job.modality)
        for _ in range(job.repeat):
            started = time.perf_counter()
            outputs = llm.generate(prompts, sampling, use_tqdm=False)
            seconds = time.perf_counter() - started
        counters = {metric.name: getattr(metric, "value", 0) for metric in llm.get_metrics()}
        return Outcome(
            tokens=[list(output.outputs[0].token_ids) for output in outputs],
            drafted=int(counters.get("vllm:spec_decode_num_draft_tokens", 0)),
            accepted=int(counters.get("vllm:spec_decode_num_accepted_tokens", 0)),
            rounds=int(counters.get("vllm:spec_decode_num_drafts", 0)),
            workers=llm.collective_rpc("adapted"),
            cached=sum(output.num_cached_tokens or 0 for output in outputs),
            seconds=seconds,
        )
    except Exception as error:
        import traceback

        traceback.print_exc()
        return Outcome(error=f"{type(error).__name__}: {error}")
    finally:
        os.environ.clear()
        os.environ.update(before)
        _clean(llm)


def _clean(llm: Any) -> None:
    """Let go of the engine, so that the next one starts as the first did."""
    import gc

    from vllm.distributed import cleanup_dist_env_and_memory

    if llm is not None:
        llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    cleanup_dist_env_and_memory()


def _serve(answers: int) -> None:
    # vLLM 0.32.0 looks at every new model class in a process of its own, to keep CUDA out of this one: minutes in all
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda look: look()
    with os.fdopen(answers, "w", encoding="utf-8") as out:
        for line in sys.stdin:
            outcome = run_engine(Job(**json.loads(line)))
            out.write(json.dumps(asdict(outcome)) + "\n")
            out.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
