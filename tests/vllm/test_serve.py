"""`vllm serve` over HTTP, with the engine and the workers in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from eagle_adapters.verify.vllm.session import ENVIRONMENT


def _post(port: int, path: str, body: object) -> dict:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict = json.loads(answer.read())
    return found


def _metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return answer.read().decode()


def _wait(port: int, process: subprocess.Popen, log: Path) -> None:
    for _ in range(480):
        assert process.poll() is None, log.read_text("utf-8")[-3000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise TimeoutError(log.read_text("utf-8")[-3000:])


def test_serves_over_http_with_its_worker_processes(cases, logs: Path) -> None:
    case = cases("gemma3")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = logs / "serve.log"
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(case.folder)),
        *("--host", "127.0.0.1", "--port", str(port), "--skip-tokenizer-init", "--dtype", "float32"),
        *("--max-model-len", "256", "--max-num-seqs", "4", "--enforce-eager", "--tensor-parallel-size", "2"),
        *("--distributed-executor-backend", "mp", "--limit-mm-per-prompt", json.dumps({"image": 0})),
        *("--compilation-config", json.dumps({"custom_ops": ["none"]}), "--served-model-name", "tiny"),
        "--speculative-config",
        json.dumps({"method": "eagle3", "model": str(case.draft), "num_speculative_tokens": 2}),
    ]
    environment = {**os.environ, **ENVIRONMENT, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        _wait(port, process, log)
        answer = _post(
            port,
            "/inference/v1/generate",
            {
                "model": "tiny",
                "token_ids": case.prompt,
                "sampling_params": {
                    "temperature": 0,
                    "max_tokens": len(case.generated),
                    "ignore_eos": True,
                    "detokenize": False,
                },
            },
        )
        assert answer["choices"][0]["token_ids"] == case.generated
        accepted = [
            float(line.rsplit(" ", 1)[1])
            for line in _metrics(port).splitlines()
            if line.startswith("vllm:spec_decode_num_accepted_tokens_total")
        ]
        assert sum(accepted) > 0
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = log.read_text("utf-8")
    assert "EAGLE-3 boundaries [2, 4, 5] of 8" in said
    assert said.count("EAGLE-3 hooks given to") >= 2, "every worker adapts its own classes"
