"""Acceptance as an engine reports it: vLLM's and SGLang's metrics, in every form in which they are at hand."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import DataError

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?$")
_POSITION = re.compile(r'(?:^|,)\s*position="(\d+)"')
_LOG = re.compile(
    r"Mean acceptance length: ([\d.]+).*?Accepted: (\d+) tokens.*?Drafted: (\d+) tokens.*?"
    r"Per-position acceptance rate: ([\d., ]+?),? Avg",
    re.DOTALL,
)
_VLLM = "vllm:spec_decode_num_"
_SGLANG = "sglang:"
_MAX_STEPS = 256


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine counted while it served.

    Attributes:
        engine: `vllm` or `sglang`.
        rounds: rounds of drafting, or None when only a mean is known.
        accepted: rounds in which at least k + 1 drafted tokens were accepted, for each position k; None when unknown.
        length: tokens that a round gave: the accepted ones and the target's own.
        steps: drafted tokens in a round, or None.
    """

    engine: str
    rounds: int | None
    accepted: tuple[int, ...] | None
    length: float
    steps: int | None

    @property
    def rates(self) -> tuple[float, ...] | None:
        """For each drafted position, how often it and all before it were accepted."""
        if self.accepted is None or not self.rounds:
            return None
        return tuple(count / self.rounds for count in self.accepted)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "engine": self.engine,
            "rounds": self.rounds,
            "acceptance_length": self.length,
            "rates": None if self.rates is None else list(self.rates),
            "steps": self.steps,
        }


def read_served(text: str, before: str | None = None, *, where: str = "metrics") -> Served:
    """What an engine counted.

    Args:
        text: Prometheus text (`/metrics`) of either engine; vLLM's `LLM.get_metrics()` as JSON, or its log line
            `SpecDecoding metrics: ...`; SGLang's `meta_info`, one or a list, or its `/get_server_info`, as JSON.
        before: the same, taken before the run, to be subtracted (counters only).
        where: the name for messages.

    Raises:
        DataError: EA840, nothing about acceptance is in it; EA841, the figures contradict each other.
    """
    found = _read(text, where)
    if before is None:
        return _checked(found, where)
    earlier = _read(before, f"{where}, before")
    if found.rounds is None or earlier.rounds is None or (found.accepted is None) != (earlier.accepted is None):
        raise _fault("EA840", "these metrics are means, and cannot be subtracted", where, expected="counters")
    rounds = found.rounds - earlier.rounds
    tokens = found.length * found.rounds - earlier.length * earlier.rounds
    accepted = None
    if found.accepted is not None and earlier.accepted is not None:
        accepted = tuple(a - b for a, b in zip(found.accepted, earlier.accepted, strict=False))
    if rounds <= 0 or min(accepted or (0,)) < 0:
        raise _fault("EA841", "the counters went back between the two files", where, found=f"{rounds} rounds")
    return _checked(Served(found.engine, rounds, accepted, tokens / rounds, found.steps), where)


def _read(text: str, where: str) -> Served:
    stripped = text.lstrip()
    if stripped.startswith(("{", "[")):
        try:
            return _json(json.loads(stripped), where)
        except (ValueError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise _fault("EA840", "the metrics are not JSON", where, found=str(error)[:120]) from error
    logged = list(_LOG.finditer(text))
    if logged:
        return _logged(logged)
    return _prometheus(text, where)


def _prometheus(text: str, where: str) -> Served:
    totals: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in text.splitlines():
        found = _SAMPLE.match(line.strip())
        if found is None or not found[1].startswith((_VLLM, _SGLANG)):
            continue
        name, value = found[1].removesuffix("_total"), _number(found[3], where)
        place = _POSITION.search(found[2] or "")
        if place is not None and name == f"{_VLLM}accepted_tokens_per_pos":
            positions[int(place[1])] = positions.get(int(place[1]), 0) + value
        else:
            totals[name] = totals.get(name, 0) + value
    return _totals(totals, positions, where)


def _totals(totals: Mapping[str, float], positions: Mapping[int, float], where: str) -> Served:
    rounds = totals.get(f"{_VLLM}drafts", 0)
    if rounds > 0:
        accepted = totals.get(f"{_VLLM}accepted_tokens", 0)
        drafted = totals.get(f"{_VLLM}draft_tokens", 0)
        if accepted > drafted:
            raise _fault("EA841", "more tokens were accepted than drafted", where, found=f"{accepted:g} of {drafted:g}")
        last = max(positions, default=-1)
        if last >= _MAX_STEPS:
            raise _fault("EA840", "there are more positions than any engine drafts", where, found=str(last + 1))
        counts = tuple(int(positions.get(k, 0)) for k in range(last + 1)) or None
        if counts is not None and sum(counts) != int(accepted):
            raise _fault(
                "EA841",
                "the accepted tokens by position do not add up",
                where,
                expected=f"{accepted:g}",
                found=f"{sum(counts)}",
            )
        return Served("vllm", int(rounds), counts, 1 + accepted / rounds, last + 1 or round(drafted / rounds))
    length, calls = totals.get(f"{_SGLANG}spec_accept_length", 0), totals.get(f"{_SGLANG}spec_verify_calls", 0)
    steps = int(totals.get(f"{_SGLANG}spec_num_steps", 0)) or None
    tokens = totals.get(f"{_SGLANG}generation_tokens", 0)
    if calls > 0 and tokens > 0:
        return Served("sglang", int(calls), None, tokens / calls, steps)
    if length > 0:
        return Served("sglang", None, None, length, steps)
    raise _fault(
        "EA840",
        "nothing about acceptance is in these metrics",
        where,
        expected=f"{_VLLM}drafts_total, or {_SGLANG}spec_accept_length",
        found="neither, or zero: the engine has not drafted yet",
        next_step="send requests first; start the engine with its metrics enabled",
    )


def _json(document: Any, where: str) -> Served:
    rows = list(_rows(document))
    named = [row for row in rows if str(row.get("name", "")).startswith(_VLLM)]
    if named:
        totals: dict[str, float] = {}
        positions: dict[int, float] = {}
        for row in named:
            name = str(row["name"]).removesuffix("_total")
            values = row.get("values")
            if isinstance(values, list):
                for place, value in enumerate(values):
                    positions[place] = positions.get(place, 0) + _number(value, where)
            else:
                totals[name] = totals.get(name, 0) + _number(row.get("value"), where)
        return _totals(totals, positions, where)
    requests = [row for row in rows if _counted(row)]
    if requests:
        return _requests(requests, where)
    means = [row["avg_spec_accept_length"] for row in rows if "avg_spec_accept_length" in row]
    if means:
        return Served("sglang", None, None, sum(_number(mean, where) for mean in means) / len(means), None)
    raise _fault(
        "EA840",
        "nothing about acceptance is in this JSON",
        where,
        expected=f"{_VLLM}* metrics, or spec_verify_ct and spec_num_correct_drafts of meta_info",
    )


def _rows(document: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Every object in the document, the outer ones first."""
    if isinstance(document, dict):
        yield document
    if depth < 8 and isinstance(document, dict | list):
        for inner in document.values() if isinstance(document, dict) else document:
            yield from _rows(inner, depth + 1)


def _counted(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("spec_verify_ct"), int) and isinstance(row.get("spec_num_correct_drafts"), int)


def _requests(rows: Sequence[Mapping[str, Any]], where: str) -> Served:
    """SGLang's `meta_info` of some requests (sglang 0.5.23, managers/tokenizer_manager.py)."""
    rounds = sum(row["spec_verify_ct"] for row in rows)
    correct = sum(row["spec_num_correct_drafts"] for row in rows)
    proposed = sum(int(_number(row.get("spec_num_proposed_drafts", 0), where)) for row in rows)
    if rounds <= 0:
        raise _fault("EA840", "no round of drafting was counted", where, found="spec_verify_ct 0")
    if proposed and correct > proposed:
        raise _fault("EA841", "more tokens were accepted than drafted", where, found=f"{correct} of {proposed}")
    steps = proposed // rounds or None
    histograms = [row.get("spec_correct_drafts_histogram") for row in rows]
    if not all(isinstance(h, list) and all(isinstance(n, int) and n >= 0 for n in h) for h in histograms):
        return Served("sglang", rounds, None, 1 + correct / rounds, steps)
    width = min(max([len(h) for h in histograms if h] + [(steps or 0) + 1]), _MAX_STEPS)
    totals = [sum(h[k] for h in histograms if h and k < len(h)) for k in range(width)]
    accepted = tuple(sum(totals[k + 1 :]) for k in range(width - 1))
    if sum(totals) != rounds or sum(accepted) != correct:
        raise _fault(
            "EA841",
            "the histogram does not add up",
            where,
            expected=f"{rounds} rounds, {correct} accepted",
            found=f"{sum(totals)} rounds, {sum(accepted)} accepted",
        )
    return Served("sglang", rounds, accepted, 1 + correct / rounds, len(accepted))


def _logged(lines: Iterable[re.Match[str]]) -> Served:
    """Log lines of vLLM (vllm 0.32.0, v1/spec_decode/metrics.py); rates are rounded there, so counts are near."""
    rounds, accepted = 0, 0
    counts: list[float] = []
    for line in lines:
        rates = [float(rate) for rate in line[4].split(",") if rate.strip()]
        drafts = round(int(line[3]) / max(len(rates), 1))
        rounds += drafts
        accepted += int(line[2])
        counts += [0.0] * (len(rates) - len(counts))
        for k, rate in enumerate(rates):
            counts[k] += rate * drafts
    if rounds <= 0:
        raise _fault("EA840", "no round of drafting was logged", "log")
    return Served("vllm", rounds, tuple(round(count) for count in counts), 1 + accepted / rounds, len(counts))


def _checked(served: Served, where: str) -> Served:
    counts = served.accepted or ()
    fault = None
    if served.length < 1:
        fault = f"an acceptance length of {served.length:.3f}, below 1"
    elif served.steps is not None and served.length > served.steps + 1 + 1e-6:
        fault = f"an acceptance length of {served.length:.3f} with {served.steps} drafted tokens"
    elif any(later > sooner for sooner, later in pairwise(counts)):
        fault = f"a later position accepted more often than an earlier one: {list(counts)}"
    elif counts and served.rounds is not None and counts[0] > served.rounds:
        fault = f"{counts[0]} accepted first tokens in {served.rounds} rounds"
    if fault is not None:
        raise _fault("EA841", "the figures contradict each other", where, found=fault)
    return served


def _number(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise _fault("EA840", "a metric is not a number", where, expected="a number", found=repr(value)[:60])
    return number


def _fault(
    code: str,
    message: str,
    where: str,
    *,
    expected: str | None = None,
    found: str | None = None,
    next_step: str | None = None,
) -> DataError:
    return DataError(Diagnostic(code, message, where=where, expected=expected, found=found, next_step=next_step))
