"""What the plug-in adds to the start of a vLLM process that does not ask for EAGLE-3.

Every process of vLLM loads its general plug-ins first thing. Forks of one process that has imported vLLM and nothing of
this package do just that by turns: with the plug-in, with it switched off (EAGLE_ADAPTERS=off), and with vLLM told to
load all others only (VLLM_PLUGINS); vLLM's own two plug-ins are in all of them.

    make bench-vllm, or: .venv-vllm/bin/python benchmarks/vllm/startup.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from importlib.metadata import entry_points

import vllm.plugins

OTHERS = ",".join(point.name for point in entry_points(group="vllm.general_plugins") if point.name != "eagle_adapters")
VARIANTS = {
    "without it": {"VLLM_PLUGINS": OTHERS},
    "switched off": {"EAGLE_ADAPTERS": "off"},
    "with it": {"EAGLE_ADAPTERS": "on"},
}


def milliseconds(variant: str) -> float:
    """How long a fork of this process takes to load the plug-ins."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.environ.update(VARIANTS[variant])
            start = time.perf_counter()
            vllm.plugins.load_general_plugins()
            os.write(writer, f"{1000 * (time.perf_counter() - start)}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        return float(answer.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    assert "eagle_adapters" not in sys.modules
    for variant in VARIANTS:
        milliseconds(variant)
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(rounds):
        for variant, found in times.items():
            found.append(milliseconds(variant))
    for variant, found in times.items():
        more = statistics.median(own - bare for own, bare in zip(found, times["without it"], strict=True))
        print(f"{variant:12} {statistics.median(found):7.1f} ms  ({more:+6.1f} ms over a process without it)")
    print(f"medians of {rounds}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
