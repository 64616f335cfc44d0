"""What the plug-in adds to the start of a vLLM process that does not ask for EAGLE-3.

Every process of vLLM loads its general plug-ins first thing. Forks of one process that has imported vLLM and nothing of
this package do just that by turns: with the plug-in, with it switched off (EAGLE_ADAPTERS=off), and with vLLM told to
load all others only (VLLM_PLUGINS); vLLM's own two plug-ins are in all of them.

    make bench-vllm, or: .venv-vllm/bin/python benchmarks/vllm/startup.py [--rounds 15]
"""

from __future__ import annotations

import sys
from pathlib import Path

import vllm.plugins

sys.path.insert(0, str(Path(__file__).parents[1]))

from by_turns.plugin_load import compare_loads, other_plugins

if __name__ == "__main__":
    without = {"VLLM_PLUGINS": other_plugins("vllm.general_plugins")}
    compare_loads(__doc__, vllm.plugins.load_general_plugins, without)
