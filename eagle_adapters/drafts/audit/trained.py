"""Audit of the values: not finite, still as initialised, or unlike the target's embedding and head."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.header import TensorInfo
from eagle_adapters.drafts.spec import DraftSpec
from eagle_adapters.drafts.values import read_integers, read_rows, readable, sample

_WINDOWS = 64
_COARSE, _FINE = 64, 1024
"""Values per window: a coarse look at every tensor, a fine one where the coarse look raises suspicion."""

_FEWEST = 2048
"""Values below which a distribution cannot be told."""

_SIGMAS = 4.0
_ROWS = 24
_WIDTH = 256
_ALIKE = 0.5
"""Mean cosine from which rows count as derived from the target's."""


def audit_values(pair: Pair) -> Iterator[Diagnostic]:
    """EA744 never trained, EA745 not finite, EA746 unlike the target's."""
    for name, tensor in pair.draft.tensors.items():
        if name not in ("d2t", "t2d") and readable(tensor):
            yield from _values(name, tensor, pair.draft)
    yield from _embedding(pair)
    yield from _head(pair)


def _values(name: str, tensor: TensorInfo, draft: DraftSpec) -> Iterator[Diagnostic]:
    windows = sample(tensor, _WINDOWS, _COARSE)
    if windows is None:
        return
    if not all(math.isfinite(value) for window in windows for value in window):
        yield Diagnostic(
            "EA745",
            f"{tensor.name} holds values that are not finite",
            Severity.ERROR,
            expected="finite weights",
            found="NaN or infinity",
            where=tensor.name,
            consequence="every draft logit becomes NaN; nothing is accepted",
            next_step="use an earlier checkpoint",
        )
        return
    if len(tensor.shape) != 2 or name == "embed_tokens.weight" or _initial(windows, tensor, draft) is None:
        return
    windows = sample(tensor, _WINDOWS, _FINE) or windows
    found = _initial(windows, tensor, draft)
    if found is not None:
        yield Diagnostic(
            "EA744",
            f"{tensor.name} looks as if it was never trained",
            Severity.WARNING,
            expected="the spread of trained weights, which differs from row to row",
            found=found,
            where=tensor.name,
            consequence="if it is random, nothing is accepted; a conversion with strict=False leaves tensors so",
            next_step="compare it with the checkpoint that came out of training",
        )


def _initial(windows: Sequence[Sequence[float]], tensor: TensorInfo, draft: DraftSpec) -> str | None:
    """The initialiser whose distribution the values have, within `_SIGMAS`, evenly over all windows; or None."""
    values = [value for window in windows for value in window]
    count = len(values)
    if count < _FEWEST:
        return None
    mean = sum(values) / count
    squares = [(value - mean) ** 2 for value in values]
    variance = sum(squares) / count
    if variance == 0:
        return None
    kurtosis = sum(square * square for square in squares) / count / variance**2
    spread = math.sqrt(variance)
    stated = draft.config.get("initializer_range")
    scales = {0.02, 1.0, stated if isinstance(stated, float) and stated > 0 else 0.02}
    bound = 1 / math.sqrt(tensor.shape[1])
    for expected, fourth, name in (
        *((scale, 3.0, f"normal numbers of spread {scale:g}") for scale in sorted(scales)),
        (bound / math.sqrt(3), 1.8, f"uniform numbers within {bound:.4g}, the default of a new torch linear layer"),
    ):
        # standard errors of the spread and of the kurtosis of `count` independent values
        loose = math.sqrt((fourth - 1) / (4 * count))
        if abs(spread / expected - 1) > _SIGMAS * loose or abs(kurtosis - fourth) > _SIGMAS * math.sqrt(24 / count):
            continue
        if abs(mean) <= _SIGMAS * spread / math.sqrt(count) and _even(windows, variance, fourth):
            return f"{count} sampled values: {name}, equally spread in all rows"
    return None


def _even(windows: Sequence[Sequence[float]], variance: float, fourth: float) -> bool:
    """Whether the windows differ no more in their mean square than independent values would."""
    width = len(windows[0])
    ratios = [sum(value * value for value in window) / len(window) / variance for window in windows]
    found = sum((ratio - 1) ** 2 for ratio in ratios) / len(ratios)
    expected = (fourth - 1) / width
    return found <= expected * (1 + _SIGMAS * math.sqrt(2 / len(ratios)))


def _embedding(pair: Pair) -> Iterator[Diagnostic]:
    ours, theirs = pair.draft.tensors.get("embed_tokens.weight"), pair.target.embedding
    if ours is None or theirs is None or ours.shape[1:] != theirs.shape[1:]:
        return
    likeness = _likeness(ours, theirs, lambda row: row)
    if likeness is None:
        return
    if likeness > 1 - 1e-9:
        yield _compared("the draft's embedding is the target's", Severity.NOTE, likeness, ours, "none: it is shared")
    elif likeness < _ALIKE:
        yield _compared(
            "the draft's embedding is unrelated to the target's",
            Severity.WARNING,
            likeness,
            ours,
            "SGLang replaces it by the target's, vLLM uses it: at most one of them runs the draft that was trained",
        )


def _head(pair: Pair) -> Iterator[Diagnostic]:
    ours = pair.draft.tensors.get("lm_head.weight")
    theirs = pair.target.head or (pair.target.embedding if pair.target.tied else None)
    d2t = pair.draft.tensors.get("d2t")
    if ours is None or theirs is None or ours.shape[1:] != theirs.shape[1:]:
        return
    if d2t is None and ours.shape != theirs.shape:
        return
    if d2t is not None and (not readable(d2t) or d2t.shape != ours.shape[:1] or d2t.dtype not in ("I64", "I32")):
        return
    offsets = [0] * ours.shape[0] if d2t is None else read_integers(d2t)
    likeness = _likeness(ours, theirs, lambda row: row + offsets[row])
    if likeness is None or likeness >= _ALIKE:
        return
    straight = _likeness(ours, theirs, lambda row: row) if d2t is not None else None
    if straight is not None and straight >= _ALIKE:
        yield _compared(
            "the draft's head has the target's rows at other tokens than d2t says",
            Severity.ERROR,
            likeness,
            ours,
            "the head and the map come from different exports: draft tokens are mapped to wrong tokens",
        )
        return
    yield _compared(
        "the draft's head is unrelated to the target's",
        Severity.NOTE,
        likeness,
        ours,
        "none if it was trained from scratch; otherwise d2t belongs to another head",
    )


def _likeness(ours: TensorInfo, theirs: TensorInfo, row_of: object) -> float | None:
    """The mean cosine of sampled rows; None when the values are not at hand."""
    if not (readable(ours) and readable(theirs)) or not callable(row_of):
        return None
    step = max(ours.shape[0] // _ROWS, 1)
    rows = [row for row in range(0, ours.shape[0], step) if 0 <= row_of(row) < theirs.shape[0]]
    first, second = read_rows(ours, rows, _WIDTH), read_rows(theirs, [row_of(row) for row in rows], _WIDTH)
    if not first or not second:
        return None
    cosines = [cosine for a, b in zip(first, second, strict=True) if (cosine := _cosine(a, b)) is not None]
    return sum(cosines) / len(cosines) if cosines else None


def _cosine(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The cosine, or None when a row is zero (padding) or not finite."""
    norm = math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norm if 0 < norm < math.inf else None


def _compared(message: str, severity: Severity, likeness: float, ours: TensorInfo, consequence: str) -> Diagnostic:
    return Diagnostic(
        "EA746",
        message,
        severity,
        expected="the target's rows, or rows derived from them",
        found=f"mean cosine {likeness:.3f} of sampled rows",
        where=ours.name,
        consequence=consequence,
        next_step=None if severity is Severity.NOTE else "check which base model the draft was trained with",
    )
