"""The header of a safetensors file, read without reading the tensors, and checked as if it were hostile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_adapters.drafts.documents import check_regular, parse_json, refusal

HEADER_LIMIT = 100_000_000
"""Bytes that a header may have; the limit of the safetensors library."""

ITEM_BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Bits of one element, by safetensors dtype."""

_MAX_DIMENSION = 2**48
_MAX_RANK = 16


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checkpoint, without its values.

    Attributes:
        name: the name in the file.
        dtype: the safetensors dtype, e.g. `BF16`.
        shape: the dimensions.
        file: the file, or None when only the header is at hand (a model on the hub).
        start: first byte of the values in the file.
        stop: first byte after them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path | None
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one file: its tensors by name, and its free metadata."""

    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]


def read_header(path: Path) -> Header:
    """The header of a safetensors file; no tensor is read.

    Raises:
        DataError: EA700, not a regular file; EA701, truncated, oversized or inconsistent header: bad JSON, unknown
            dtype, sizes that do not fit the shape, offsets that overlap, leave holes or pass the end of the file.
    """
    size = check_regular(path)
    if size < 8:
        raise refusal("EA701", f"{path.name} is truncated", path, expected="8 bytes or more", found=f"{size} bytes")
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > min(HEADER_LIMIT, size - 8):
            raise refusal(
                "EA701",
                f"{path.name} says that its header is longer than it can be",
                path,
                expected=f"at most {min(HEADER_LIMIT, size - 8)} bytes",
                found=f"{length} bytes",
                next_step="download the file again",
            )
        data = stream.read(length)
    entries = parse_json(data, path, code="EA701")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise refusal("EA701", f"{path.name} has malformed metadata", path, expected="an object of strings")
    base = 8 + length
    tensors = {name: _tensor(name, entry, path, base) for name, entry in entries.items()}
    _check_layout(tensors, path, base, size)
    return Header(tensors, metadata)


def _tensor(name: str, entry: Any, path: Path, base: int) -> TensorInfo:
    where = f"{path}: {name[:200]}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise refusal("EA701", "a tensor entry is malformed", where, expected="dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BITS:
        raise refusal(
            "EA701", "a tensor has an unknown dtype", where, expected=", ".join(ITEM_BITS), found=repr(dtype)[:80]
        )
    if not isinstance(shape, list) or len(shape) > _MAX_RANK or not all(_is_count(n) for n in shape):
        raise refusal("EA701", "a tensor has an impossible shape", where, found=repr(shape)[:80])
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(n) for n in offsets):
        raise refusal("EA701", "a tensor has impossible offsets", where, found=repr(offsets)[:80])
    bits = math.prod(shape) * ITEM_BITS[dtype]
    if bits % 8 or offsets[1] - offsets[0] != bits // 8:
        raise refusal(
            "EA701",
            "a tensor's size does not fit its shape",
            where,
            expected=f"{bits / 8:g} bytes for {dtype} {shape}",
            found=f"{offsets[1] - offsets[0]} bytes",
        )
    return TensorInfo(name, dtype, tuple(shape), path, base + offsets[0], base + offsets[1])


def _is_count(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MAX_DIMENSION


def _check_layout(tensors: Mapping[str, TensorInfo], path: Path, base: int, size: int) -> None:
    """The values must fill the file from the end of the header to its last byte, one after the other."""
    end, before = base, "the header"
    for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.stop)):
        if tensor.start != end:
            fault = "overlap" if tensor.start < end else "leave a hole"
            raise refusal(
                "EA701", f"the values of {before} and {tensor.name} {fault}", path, found=f"byte {tensor.start}"
            )
        end, before = tensor.stop, tensor.name
    if end != size:
        fault = "is truncated" if end > size else "has bytes that belong to no tensor"
        raise refusal("EA701", f"{path.name} {fault}", path, expected=f"{end} bytes", found=f"{size} bytes")
