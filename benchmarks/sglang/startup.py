"""What the plug-in adds to the start of an SGLang process that does not ask for EAGLE-3.

Every process of SGLang loads its plug-ins first thing. Forks of one process that has imported the modules that the
plug-in waits for (SGLang's model loader and runner) and nothing of this package do just that by turns: with the
plug-in, with it switched off (EAGLE_ADAPTERS=off), and with SGLang told to load all others only (SGLANG_PLUGINS).

    make bench-sglang, or: .venv-sglang/bin/python benchmarks/sglang/startup.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
# SGLang's own kernels need a GPU's driver to be imported; none is called here.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "sglang" / "standin"))

import sglang.srt.plugins

OTHERS = ",".join(point.name for point in entry_points(group="sglang.srt.plugins") if point.name != "eagle_adapters")
VARIANTS = {
    "without it": {"SGLANG_PLUGINS": OTHERS or "none"},
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
            sglang.srt.plugins.load_plugins()
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
    import sglang.srt.model_executor.model_runner
    import sglang.srt.model_loader.loader  # noqa: F401

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
