"""One process that runs real SGLang engines one after the other, as told by JSON lines on its standard input.

Importing SGLang costs tens of seconds, an engine of a tiny checkpoint two: the process imports once and forks for each
job. The child is an ordinary program that makes an `sglang.Engine`; its scheduler and detokenizer are forked instead of
spawned, unless the job asks for `spawn`, which is exactly what a user's process does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eagle_adapters.verify.process import EngineProcess
from eagle_adapters.verify.sglang.discovery import plugin_folder

CPU = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
}
"""What an engine without a GPU runs under; a session may add to it."""

OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "skip_tokenizer_init": True,
    "context_length": 512,
    "attention_backend": "torch_native",
    "prefill_attention_backend": "intel_amx",
    "decode_attention_backend": "intel_amx",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "disable_radix_cache": True,
    "mem_fraction_static": 0.3,
    "max_total_tokens": 2048,
    "max_running_requests": 8,
    "skip_server_warmup": True,
    "random_seed": 0,
    "log_level": "info",
}
"""Arguments of every engine; a job may overwrite them. With the radix cache a cached token gives the draft no state."""


@dataclass(frozen=True, slots=True)
class Job:
    """One engine: which target and draft, what to generate, what to look at.

    Attributes:
        model: folder of the target.
        prompts: token ids, one list a prompt; each prompt is generated from alone, one after the other.
        draft: folder of the draft, or None for a run without speculation.
        max_tokens: generated for every prompt, greedily.
        options: further arguments of `sglang.Engine`.
        topk: branches of the draft tree; 1 drafts a chain.
        images: for each prompt what `image_data` gets, or None.
        together: generate from all prompts in one batch.
        environment: variables set for this job only.
        observe: folder for what the draft is handed, or None.
        spawn: start SGLang's processes the way a user's program does.
        http: serve over HTTP and ask there, instead of `Engine.generate`.
    """

    model: str
    prompts: Sequence[Sequence[int]]
    draft: str | None = None
    max_tokens: int = 12
    options: Mapping[str, Any] = field(default_factory=dict)
    topk: int = 1
    images: Sequence[Any] | None = None
    together: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    observe: str | None = None
    spawn: bool = False
    http: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an engine did.

    Attributes:
        tokens: generated ids, one list a prompt.
        drafted: tokens proposed by the draft.
        accepted: tokens of these that the target kept.
        steps: how often the target verified.
        load_seconds: how long the engine took to be ready.
        error: `Type: text` when the engine failed, else None.
        log: everything the engine's processes said.
    """

    tokens: list[list[int]] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    steps: int = 0
    load_seconds: float = 0.0
    error: str | None = None
    log: str = ""


class Session(EngineProcess):
    """A process with SGLang in it, used as a context manager."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        path: Sequence[str] = (),
        plugins: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process.

        Args:
            environment: variables on top of the present ones and of `CPU`.
            path: folders put in front on PYTHONPATH.
            plugins: further SGLang plug-ins, name -> `module:function`.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="eagle-adapters-sglang-")
        root = Path(self._folder.name)
        package = str(Path(__file__).resolve().parents[3])
        before = os.environ.get("PYTHONPATH", "")
        search = [str(plugin_folder(root, plugins)), *path, package, *([before] if before else [])]
        self._count = 0
        variables = {**CPU, **(environment or {}), "PYTHONPATH": os.pathsep.join(search)}
        super().__init__(__name__, variables, root / "session.log")

    def run(self, job: Job, *, seconds: float = 240) -> Outcome:
        """Run one engine to its end and say what it did.

        Raises:
            ChildProcessError: the session's own process died.
        """
        self._count += 1
        root = Path(self._folder.name) / str(self._count)
        root.mkdir()
        (root / "job.json").write_text(json.dumps(asdict(job)), "utf-8")
        answer = self.ask(json.dumps({"folder": str(root), "seconds": seconds}))
        log = (root / "log").read_text("utf-8", "replace")
        done = root / "outcome.json"
        if not done.is_file():
            return Outcome(error=f"ChildProcessError: the engine's process ended, {answer.strip()}", log=log)
        return Outcome(**json.loads(done.read_text("utf-8")), log=log)

    def close(self) -> None:
        """End the process, and remove what its engines said."""
        super().close()
        self._folder.cleanup()


def serve_jobs(answers: int) -> None:
    """Fork one child for each line on standard input; the body of the session's process."""
    import sglang.srt.managers.detokenizer_manager
    import sglang.srt.managers.scheduler
    import sglang.srt.models.registry  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        folder = Path(request["folder"])
        child = os.fork()
        if child == 0:
            _child(folder)
        status = _wait(child, request["seconds"])
        os.write(answers, f"{status}\n".encode())


def _child(folder: Path) -> None:
    from eagle_adapters.verify.sglang.engine import run_job

    os.setsid()
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        job = Job(**json.loads((folder / "job.json").read_text("utf-8")))
        outcome = run_job(job)
        part = folder / "outcome.part"
        part.write_text(json.dumps(outcome), "utf-8")
        part.replace(folder / "outcome.json")
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)


def _wait(child: int, seconds: float) -> str:
    """How the child ended; its whole process group is ended with it."""
    import time

    deadline = time.monotonic() + seconds
    status = None
    while time.monotonic() < deadline:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            status = f"exit status {os.waitstatus_to_exitcode(code)}"
            break
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
        status = f"no answer within {seconds:g} s"
    return status


if __name__ == "__main__":
    serve_jobs(int(sys.argv[1]))
