"""What starting costs above an empty Python: importing the package, the command's help; medians of cold processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python": ["-c", "pass"],
    "import eagle_adapters": ["-c", "import eagle_adapters"],
    "eagle-adapters --help": ["-m", "eagle_adapters", "--help"],
    "eagle-adapters list": ["-m", "eagle_adapters", "list"],
}
RUNS = 15


def milliseconds(arguments: list[str]) -> float:
    """The wall time of one fresh process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return 1000 * (time.perf_counter() - start)


def main() -> None:
    for arguments in COMMANDS.values():
        milliseconds(arguments)
    # Interleaved, so that a busy moment of the machine falls on all of them.
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, arguments in COMMANDS.items():
            times[name].append(milliseconds(arguments))
    empty = statistics.median(times["python"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:24} {middle:7.1f} ms  ({middle - empty:+7.1f} ms over an empty python)")


if __name__ == "__main__":
    main()
