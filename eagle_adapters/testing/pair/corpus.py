"""The text of the pair: sources of the Python standard library, byte for byte, chosen the same way on every machine."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

HELD_OUT = (
    "argparse.py",
    "configparser.py",
    "csv.py",
    "difflib.py",
    "shutil.py",
    "smtplib.py",
    "textwrap.py",
    "zipfile.py",
)
"""Modules kept out of training; prompts come from these. Those that a Python version lacks are left out."""

TEXT_LIMIT = 2_000_000
"""Bytes of training text."""


@cache
def training_text() -> bytes:
    """Top-level modules of the standard library in the order of a hash of their names, up to `TEXT_LIMIT` bytes."""
    chosen = [path for path in _modules() if path.name not in HELD_OUT]
    chosen.sort(key=lambda path: hashlib.sha256(path.name.encode()).digest())
    return b"".join(path.read_bytes() for path in chosen)[:TEXT_LIMIT]


@cache
def held_out_text() -> bytes:
    """The modules that no training saw, one after the other."""
    return b"".join(path.read_bytes() for path in _modules() if path.name in HELD_OUT)


def prompts(count: int, length: int = 48) -> list[list[int]]:
    """`count` stretches of `length` bytes of the held-out text as token ids, each from the start of a line."""
    text = held_out_text()
    step = (len(text) - 4 * length) // count
    starts = (text.find(b"\n", index * step) + 1 for index in range(count))
    return [list(text[start : start + length]) for start in starts]


def digest() -> str:
    """The hash of the training text: another Python version, another text, another pair."""
    return hashlib.sha256(training_text()).hexdigest()


def batches(text: bytes, size: int, length: int, seed: int) -> Iterator[Any]:
    """Endless tensors [size, length] of token ids, from random places of `text`; equal seeds give equal batches."""
    import torch

    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.arange(length)
    while True:
        starts = torch.randint(len(data) - length, (size, 1), generator=generator)
        yield data[starts + offsets]


def _modules() -> list[Path]:
    return sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
