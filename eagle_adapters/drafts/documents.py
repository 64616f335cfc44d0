"""JSON documents from folders nobody vouches for: size limits, regular files only, no NaN, no double keys."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import DataError

CONFIG_LIMIT = 16 * 2**20
"""Bytes that a config.json may have; published ones stay far below one MiB."""

INDEX_LIMIT = 256 * 2**20
"""Bytes that a `*.safetensors.index.json` may have; a quantised Kimi-K2.5 index has about 20 MiB."""


def refusal(
    code: str,
    message: str,
    path: Path | str,
    *,
    expected: str | None = None,
    found: str | None = None,
    next_step: str | None = None,
) -> DataError:
    """The error for one fault of a file, to be raised."""
    return DataError(Diagnostic(code, message, expected=expected, found=found, where=str(path), next_step=next_step))


def is_folder(path: Path) -> bool:
    """Whether it is a folder; False for names that no file system takes, where `Path.is_dir` would raise."""
    return os.path.isdir(path)


def check_regular(path: Path) -> int:
    """The size in bytes of a regular file; links are followed, as model caches are made of them.

    Raises:
        DataError: EA700, it is missing, a dangling or endless link, a folder, or a device.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        # ValueError: a NUL in the name; RuntimeError-like link loops come as OSError (ELOOP).
        raise refusal("EA700", f"{path.name} cannot be opened", path, found=str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise refusal("EA700", f"{path.name} cannot be read", path, expected="a regular file", found=kind)
    return status.st_size


def read_bytes(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes.

    Raises:
        DataError: EA700, as `check_regular`, too large, or not readable.
    """
    size = check_regular(path)
    if size > limit:
        raise refusal(
            "EA700", f"{path.name} is too large", path, expected=f"at most {limit} bytes", found=f"{size} bytes"
        )
    try:
        with path.open("rb") as stream:
            return stream.read(limit)
    except OSError as error:
        raise refusal("EA700", f"{path.name} cannot be read", path, found=str(error)) from error


def parse_json(data: bytes, path: Path | str, *, code: str = "EA700", infinity: bool = False) -> dict[str, Any]:
    """The JSON object in `data`.

    Args:
        data: the text as UTF-8.
        path: where it came from, for the message.
        code: the code of the error.
        infinity: accept `Infinity`, which some published configs carry (`time_step_limit`); NaN never is.

    Raises:
        DataError: `code`, not UTF-8, not JSON, not an object, a double key, NaN, or nested too deep.
    """
    try:
        text = data.decode("utf-8")
        found = json.loads(text, parse_constant=_constant(infinity), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise refusal(code, "the text is not UTF-8", path, found=str(error)) from error
    except RecursionError:
        raise refusal(code, "the JSON is nested too deep", path) from None
    except ValueError as error:
        # also integers of more than 4300 digits, which Python refuses to parse
        raise refusal(code, "this is not the JSON that was expected", path, found=str(error)) from error
    if not isinstance(found, dict):
        raise refusal(code, "the JSON is not an object", path, expected="an object", found=type(found).__name__)
    return found


def read_config(path: Path) -> dict[str, Any]:
    """The content of a config.json.

    Raises:
        DataError: EA700, see `read_bytes` and `parse_json`.
    """
    return parse_json(read_bytes(path, CONFIG_LIMIT), path, infinity=True)


def _constant(infinity: bool) -> Callable[[str], float]:
    def constant(word: str) -> float:
        if infinity and word in ("Infinity", "-Infinity"):
            return float(word)
        raise ValueError(f"{word} is not a JSON number")

    return constant


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {double!r} is given twice")
    return out
