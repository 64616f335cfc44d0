"""Time what an engine's plug-in loader does in forks of this process, by turns under different environments."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points


def other_plugins(group: str) -> str:
    """The names of a group's entry points but ours, comma-separated, as the engines' allow-lists take them."""
    return ",".join(point.name for point in entry_points(group=group) if point.name != "eagle_adapters")


def compare_loads(description: str | None, load: Callable[[], object], without: Mapping[str, str]) -> None:
    """Print how long `load` takes with our plug-in, with it switched off, and without it.

    Args:
        description: of the script, for `--help`.
        load: the engine's function that loads its plug-ins; nothing of this package may be imported yet.
        without: the environment under which the engine loads all others only.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    variants = {
        "without it": without,
        "switched off": {"EAGLE_ADAPTERS": "off"},
        "with it": {"EAGLE_ADAPTERS": "on"},
    }
    assert "eagle_adapters" not in sys.modules
    for environment in variants.values():
        _milliseconds(load, environment)
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        for variant, found in times.items():
            found.append(_milliseconds(load, variants[variant]))
    for variant, found in times.items():
        more = statistics.median(own - bare for own, bare in zip(found, times["without it"], strict=True))
        print(f"{variant:12} {statistics.median(found):7.1f} ms  ({more:+6.1f} ms over a process without it)")
    print(f"medians of {rounds}, load {os.getloadavg()[0]:.1f}")


def _milliseconds(load: Callable[[], object], environment: Mapping[str, str]) -> float:
    """How long a fork of this process takes to load the plug-ins."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.environ.update(environment)
            start = time.perf_counter()
            load()
            os.write(writer, f"{1000 * (time.perf_counter() - start)}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        return float(answer.read())
