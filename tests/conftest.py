"""Settings of every suite: one thread a process, reproducible property tests, an engine's suite only beside it."""

from __future__ import annotations

import os
from importlib.util import find_spec

# Two test processes share a small machine; set before anything imports torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# These suites run in environments of their own (`make test-vllm`, `make test-sglang`).
collect_ignore = [engine for engine in ("vllm", "sglang") if find_spec(engine) is None]

if find_spec("hypothesis") is not None:
    from hypothesis import settings

    settings.register_profile("dev", deadline=None)
    settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
    settings.load_profile("ci" if os.environ.get("CI") else "dev")
