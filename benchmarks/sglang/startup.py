"""What the plug-in adds to the start of an SGLang process that does not ask for EAGLE-3.

Every process of SGLang loads its plug-ins first thing. Forks of one process that has imported the modules that the
plug-in waits for (SGLang's model loader and runner) and nothing of this package do just that by turns: with the
plug-in, with it switched off (EAGLE_ADAPTERS=off), and with SGLang told to load all others only (SGLANG_PLUGINS).

    make bench-sglang, or: .venv-sglang/bin/python benchmarks/sglang/startup.py [--rounds 15]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
ROOT = Path(__file__).parents[2]
# SGLang's own kernels need a GPU's driver to be imported; none is called here.
sys.path[:0] = [str(ROOT / "tests" / "sglang" / "standin"), str(ROOT / "benchmarks")]

if __name__ == "__main__":
    import sglang.srt.model_executor.model_runner
    import sglang.srt.model_loader.loader
    import sglang.srt.plugins
    from by_turns.plugin_load import compare_loads, other_plugins

    without = {"SGLANG_PLUGINS": other_plugins("sglang.srt.plugins") or "none"}
    compare_loads(__doc__, sglang.srt.plugins.load_plugins, without)
