"""`eagle_adapters.wrap` by hand, in a process without the plug-in: a class, a live model, a compiled one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from eagle_adapters.verify.vllm.session import ENVIRONMENT

_PROBE = """
import json, sys
from pathlib import Path

from safetensors.torch import save_file
import torch
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.models.gemma3_mm import Gemma3ForConditionalGeneration
from vllm.model_executor.models.interfaces import supports_eagle3

from eagle_adapters import explain, unwrap, wrap
from eagle_adapters.errors import AdaptationError
from eagle_adapters.verify.vllm.session import Job, run_engine

plain, served, seen = json.loads(sys.argv[1])
plain, served = Job(**plain), Job(**served)
said = {}

# a class, before an engine is built of it; and back
wrap(Gemma3ForConditionalGeneration)
outcome = run_engine(served)
said["class"] = {"error": outcome.error, "tokens": outcome.tokens, "accepted": outcome.accepted}
unwrap(Gemma3ForConditionalGeneration)
said["unwrapped"] = run_engine(served).error


def build(**options):
    common = {"skip_tokenizer_init": True, "dtype": "float32", "max_model_len": 256, "enable_prefix_caching": False}
    return LLM(plain.model, **{**common, "compilation_config": {"custom_ops": ["none"]}, **plain.options, **options})


# a live model of which nothing has been compiled
llm = build(enforce_eager=True)


def capture(worker):
    runner = worker.model_runner
    model = runner.get_model()
    before = supports_eagle3(model)
    assert wrap(model) is model
    model.set_aux_hidden_state_layers((2, 4, 5))
    runner.use_aux_hidden_state_outputs = True
    forward, count = model.forward, 0

    def observed(*args, **kwargs):
        nonlocal count
        out = forward(*args, **kwargs)
        rows = {"tokens": kwargs["input_ids"], "positions": kwargs["positions"], "states": torch.cat(out[1], -1)}
        save_file({name: rows[name].clone() for name in rows}, Path(seen) / f"rank0-{count:05d}-0.safetensors")
        count += 1
        return out

    model.forward = observed
    return {"before": before, "after": supports_eagle3(model), "status": explain(model).status}


said["live"] = llm.collective_rpc(capture)[0]
sampling = SamplingParams(temperature=0, max_tokens=plain.max_tokens, ignore_eos=True, detokenize=False)
outputs = llm.generate([{"prompt_token_ids": list(plain.prompts[0])}], sampling, use_tqdm=False)
said["live"]["tokens"] = [list(outputs[0].outputs[0].token_ids)]
unwrap(llm.collective_rpc(lambda worker: worker.model_runner.get_model())[0])
llm.llm_engine.engine_core.shutdown()
del llm
cleanup_dist_env_and_memory()

# a live model that was built with torch.compile
compiled = {"custom_ops": ["none"], "backend": "eager", "cudagraph_mode": "NONE"}
llm = build(enforce_eager=False, compilation_config=compiled)


def too_late(worker):
    model = worker.model_runner.get_model()
    try:
        wrap(model)
    except AdaptationError as error:
        return {"error": str(error), "supports": supports_eagle3(model)}


said["compiled"] = llm.collective_rpc(too_late)[0]
llm.llm_engine.engine_core.shutdown()
print("RESULT " + json.dumps(said))
"""


def test_wrap_takes_classes_and_fresh_models_only(cases, logs: Path, tmp_path: Path) -> None:
    case = cases("gemma3")
    (tmp_path / "live").mkdir()
    jobs = [asdict(case.job()), asdict(case.job(case.draft(), observe=str(tmp_path / "class")))]
    with (logs / "wrap.log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, json.dumps([*jobs, str(tmp_path / "live")])],
            env={**os.environ, **ENVIRONMENT, "EAGLE_ADAPTERS": "off"},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=False,
        )
    assert done.returncode == 0, (logs / "wrap.log").read_text("utf-8", "replace")[-3000:]
    said = json.loads(done.stdout.rpartition("RESULT ")[2])

    assert said["class"]["error"] is None
    assert said["class"]["tokens"] == [case.generated]
    assert said["class"]["accepted"] > 0
    case.check_states(tmp_path / "class")
    assert "does not support EAGLE3 interface" in said["unwrapped"]

    live = {"before": False, "after": True, "status": "adapted", "tokens": [case.generated]}
    assert said["live"] == live
    case.check_states(tmp_path / "live")

    assert "EA525" in said["compiled"]["error"]
    assert "eagle3 speculative config" in said["compiled"]["error"]
    assert said["compiled"]["supports"] is False
