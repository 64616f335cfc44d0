"""Run one job on one real engine, in this process and the ones that SGLang starts."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from typing import Any

from eagle_adapters.verify.sglang.session import OPTIONS, Job


def run_job(job: Job) -> dict[str, Any]:
    """The fields of an `Outcome` but its log."""
    os.environ.update(job.environment)
    if job.observe is not None:
        os.environ["EAGLE_ADAPTERS_OBSERVE"] = job.observe
    if not job.spawn:
        _fork_processes()
    options = {**OPTIONS, "model_path": job.model, **_speculation(job), **job.options}
    try:
        return _over_http(job, options) if job.http else _in_process(job, options)
    except BaseException as error:  # the engine exits the process on some failures
        return {"error": f"{type(error).__name__}: {error}"}


def _fork_processes() -> None:
    """Start SGLang's processes as copies of this one: the modules are imported already."""
    import multiprocessing

    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda *args, **kwargs: None


def _speculation(job: Job) -> dict[str, Any]:
    if job.draft is None:
        return {}
    return {
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": job.draft,
        "speculative_num_steps": 3,
        "speculative_eagle_topk": job.topk,
        "speculative_num_draft_tokens": 4 if job.topk == 1 else 8,
        "speculative_draft_attention_backend": "intel_amx",
    }


def _sampling(job: Job) -> dict[str, Any]:
    return {"temperature": 0, "max_new_tokens": job.max_tokens, "ignore_eos": True}


def _in_process(job: Job, options: dict[str, Any]) -> dict[str, Any]:
    import sglang

    begun = time.monotonic()
    engine = sglang.Engine(**options)
    loaded = time.monotonic() - begun
    try:
        if job.together:
            answers = engine.generate(input_ids=[list(p) for p in job.prompts], sampling_params=_sampling(job))
        else:
            images = job.images or [None] * len(job.prompts)
            answers = [
                engine.generate(input_ids=list(prompt), sampling_params=_sampling(job), image_data=image)
                for prompt, image in zip(job.prompts, images, strict=True)
            ]
    finally:
        engine.shutdown()
    return {"load_seconds": loaded, **_summary(answers)}


def _over_http(job: Job, options: dict[str, Any]) -> dict[str, Any]:
    """Ask a server that runs as `python -m sglang.launch_server` does, in a process of its own."""
    import multiprocessing
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    begun = time.monotonic()
    server = multiprocessing.get_context().Process(target=_launch, args=({**options, "port": port},))
    server.start()
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                if not server.is_alive():
                    raise RuntimeError(f"the server ended with code {server.exitcode}") from None
                time.sleep(0.1)
        loaded = time.monotonic() - begun
        images = job.images or [None] * len(job.prompts)
        answers = []
        for prompt, image in zip(job.prompts, images, strict=True):
            body = {"input_ids": list(prompt), "sampling_params": _sampling(job)} | (
                {"image_data": image} if image else {}
            )
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=120) as response:
                answers.append(json.load(response))
    finally:
        server.terminate()
        server.join(10)
    return {"load_seconds": loaded, **_summary(answers)}


def _launch(options: dict[str, Any]) -> None:
    from sglang.srt.entrypoints.http_server import launch_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import ServerArgs

    load_plugins()
    launch_server(ServerArgs(**options))


def _summary(answers: list[dict[str, Any]]) -> dict[str, Any]:
    metas = [answer["meta_info"] for answer in answers]
    steps = sum(int(meta.get("spec_verify_ct", 0)) for meta in metas)
    return {
        "tokens": [answer["output_ids"] for answer in answers],
        "steps": steps,
        "accepted": sum(int(meta.get("spec_num_correct_drafts", 0)) for meta in metas),
        "drafted": sum(int(meta.get("spec_num_proposed_drafts", 0)) for meta in metas),
    }
