"""`vllm serve` over HTTP: the engine core and the workers run in processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_adapters.verify.vllm.session import ENVIRONMENT

STARTS_WITHIN = 400
"""Seconds after which a server that does not answer counts as failed."""


@dataclass(frozen=True)
class Server:
    """A `vllm serve` that was started, with everything it and its processes say in one file."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def ready(self) -> bool:
        """Wait until it answers; false when it ended instead."""
        for _ in range(STARTS_WITHIN):
            if self.process.poll() is not None:
                return False
            try:
                self.get("/health")
            except (urllib.error.URLError, OSError):
                time.sleep(1)
            else:
                return True
        raise TimeoutError(self.said()[-3000:])

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            text: str = answer.read().decode()
        return text

    def post(self, path: str, body: object) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def counter(self, name: str) -> float:
        """The sum of one of its Prometheus counters."""
        return sum(map(float, re.findall(rf"^{name}{{[^}}]*}} (\S+)$", self.get("/metrics"), re.MULTILINE)))

    def said(self) -> str:
        return self.log.read_text("utf-8", errors="replace")


@contextmanager
def serving(target: Path, draft: Path, log: Path, **environment: str) -> Iterator[Server]:
    """`vllm serve` with two tensor-parallel workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    speculation = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 2}
    command = [
        *(str(Path(sys.executable).with_name("vllm")), "serve", str(target), "--served-model-name", "tiny"),
        *("--host", "127.0.0.1", "--port", str(port), "--enable-scale-out", "--skip-tokenizer-init"),
        *("--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "4", "--enforce-eager"),
        *("--tensor-parallel-size", "2", "--limit-mm-per-prompt", json.dumps({"image": 0})),
        *("--compilation-config", json.dumps({"custom_ops": ["none"]})),
        *("--speculative-config", json.dumps(speculation)),
    ]
    own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", **environment}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT, **own},
            start_new_session=True,
        )
    try:
        yield Server(process, f"http://127.0.0.1:{port}", log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_stock_does_not_start(cases, logs: Path) -> None:
    case = cases("gemma3")
    with serving(case.folder, case.draft(), logs / "serve-stock.log", EAGLE_ADAPTERS="off") as server:
        assert not server.ready()
        assert server.process.returncode != 0
    assert "does not support EAGLE3 interface" in server.said()


def test_serves_with_its_worker_processes(cases, logs: Path) -> None:
    case = cases("gemma3")
    with serving(case.folder, case.draft(), logs / "serve-ours.log") as server:
        assert server.ready(), server.said()[-3000:]
        sampling = {"temperature": 0, "max_tokens": len(case.generated), "ignore_eos": True, "detokenize": False}
        answer = server.post(
            "/inference/v1/generate", {"model": "tiny", "token_ids": case.prompt, "sampling_params": sampling}
        )
        assert answer["choices"][0]["token_ids"] == case.generated
        assert server.counter("vllm:spec_decode_num_draft_tokens_total") > 0
        assert server.counter("vllm:spec_decode_num_accepted_tokens_total") > 0
    lines = server.said().splitlines()
    assert any("EAGLE-3 boundaries [2, 4, 5] of 8" in line for line in lines)
    adapted = {line.partition(")")[0] for line in lines if "EAGLE-3 hooks given to" in line}
    assert len(adapted) == 2, "each worker adapts its own classes"
