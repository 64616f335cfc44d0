"""The plug-in in a process of its own: what it loads, and when it does nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_PROBE = """
import json, os, sys
from importlib.metadata import entry_points

found = [e for e in entry_points(group="vllm.general_plugins") if e.name == "eagle_adapters"]
found[0].load()()
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers", "libcst", "pydantic"})
import vllm.model_executor.model_loader.utils as loader, vllm.engine.arg_utils as arguments
from vllm.v1.worker.worker_base import WorkerBase
print("RESULT " + json.dumps({
    "entries": len(found),
    "heavy": heavy,
    "backend": "eagle_adapters.backends.vllm.planning" in sys.modules,
    "watched": [hasattr(f, "__wrapped__") for f in (
        loader.get_model_architecture, arguments.EngineArgs.create_engine_config, WorkerBase.__init__)],
}))
"""


@pytest.mark.parametrize(("switch", "watched"), [("on", True), ("off", False)])
def test_registers_without_loading_anything(switch, watched, monkeypatch) -> None:
    monkeypatch.setenv("EAGLE_ADAPTERS", switch)
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True, timeout=200)
    found = json.loads(done.stdout.rpartition("RESULT ")[2])
    assert found == {"entries": 1, "heavy": [], "backend": False, "watched": [watched] * 3}
