"""`python -m eagle_adapters.testing.pair --out DIR`: train the pair and write it to DIR."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from eagle_adapters.testing.pair.build import build_pair, load_pair


def main() -> None:
    """Build the pair, with one line of progress on stderr."""
    parser = argparse.ArgumentParser(prog="python -m eagle_adapters.testing.pair", description=__doc__)
    parser.add_argument("--out", type=Path, help="a folder that does not exist yet; default: the cache")
    out = parser.parse_args().out
    pair = load_pair(progress=_tell) if out is None else build_pair(out, progress=_tell)
    sys.stdout.write(f"{pair.folder}\n")


def _tell(stage: str, step: int, steps: int, loss: float) -> None:
    if step % 20 == 0 or step == steps:
        sys.stderr.write(f"{stage}: step {step} of {steps}, loss {loss:.3f}\n")


if __name__ == "__main__":
    main()
