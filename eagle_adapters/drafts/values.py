"""The few values that an audit looks at, decoded with the standard library: whole maps, samples of large tensors."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

from eagle_adapters.drafts.documents import refusal
from eagle_adapters.drafts.header import TensorInfo

MAP_LIMIT = 2**22
"""Elements that a vocabulary map may have; the largest known vocabulary has 2**18."""

_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "U8": "B", "BOOL": "B", "U32": "I", "U16": "H", "U64": "Q", "I8": "b"}
_CHUNK = 2**20


def readable(tensor: TensorInfo) -> bool:
    """Whether the values are at hand (they are not for a model on the hub)."""
    return tensor.file is not None


def read_integers(tensor: TensorInfo) -> Sequence[int]:
    """All values of an integer or boolean tensor.

    Raises:
        DataError: EA701, the dtype is no integer, or the tensor is larger than `MAP_LIMIT`.
    """
    code = _INTEGERS.get(tensor.dtype)
    where = f"{tensor.file}: {tensor.name}"
    if code is None or tensor.size > MAP_LIMIT:
        found = f"{tensor.dtype} {list(tensor.shape)}"
        raise refusal("EA701", f"{tensor.name} is no vocabulary map", where, expected="integers", found=found)
    out = array(code)
    out.frombytes(read_range(tensor, 0, tensor.stop - tensor.start))
    if sys.byteorder == "big":
        out.byteswap()
    return out


def read_range(tensor: TensorInfo, first: int, count: int) -> bytes:
    """`count` bytes of the values, from byte `first` of the tensor."""
    assert isinstance(tensor.file, Path)
    with tensor.file.open("rb") as stream:
        stream.seek(tensor.start + first)
        return stream.read(min(count, tensor.stop - tensor.start - first))


def read_rows(tensor: TensorInfo, rows: Sequence[int], width: int) -> list[Sequence[float]] | None:
    """The first `width` values of some rows of a matrix; None when the dtype is no plain floating point."""
    item = _FLOAT_BYTES.get(tensor.dtype)
    if item is None or len(tensor.shape) != 2:
        return None
    stride = tensor.shape[1] * item
    return [decode(read_range(tensor, row * stride, min(width, tensor.shape[1]) * item), tensor.dtype) for row in rows]


def sample(tensor: TensorInfo, windows: int, width: int) -> list[Sequence[float]] | None:
    """Runs of `width` neighbouring values, spread evenly over the tensor; None as `read_rows`."""
    item = _FLOAT_BYTES.get(tensor.dtype)
    if item is None or tensor.size == 0:
        return None
    if tensor.size <= windows * width:
        values = decode(read_range(tensor, 0, tensor.stop - tensor.start), tensor.dtype)
        return [values[at : at + width] for at in range(0, len(values), width)]
    step = (tensor.size - width) // max(windows - 1, 1)
    return [decode(read_range(tensor, k * step * item, width * item), tensor.dtype) for k in range(windows)]


def constant_value(tensor: TensorInfo) -> bytes | None:
    """The bytes of the one value that fills the whole tensor, or None; stops at the first other value."""
    if tensor.size < 2 or tensor.dtype in ("F4", "F6_E2M3", "F6_E3M2"):
        return None
    total = tensor.stop - tensor.start
    item = total // tensor.size
    first = read_range(tensor, 0, item)
    pattern = first * (_CHUNK // item)
    # small probes first: a tensor that is not constant is told from a few bytes
    for at in (total // 2 // item * item, total - item):
        if read_range(tensor, at, item) != first:
            return None
    for at in range(0, total, len(pattern)):
        chunk = read_range(tensor, at, len(pattern))
        if chunk != pattern[: len(chunk)]:
            return None
    return first


def decode(data: bytes, dtype: str) -> Sequence[float]:
    """Little-endian floating point numbers."""
    if dtype == "BF16":
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[0::2], data[1::2]
        return struct.unpack(f"<{len(data) // 2}f", wide)
    return struct.unpack(f"<{len(data) // _FLOAT_BYTES[dtype]}{_FLOAT_CODE[dtype]}", data)


_FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_FLOAT_CODE = {"F64": "d", "F32": "f", "F16": "e"}
