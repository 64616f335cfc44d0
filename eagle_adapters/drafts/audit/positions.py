"""Audit of the rotary positions of a draft against its target's."""

from __future__ import annotations

from collections.abc import Iterator

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.engine import RELEASES, VLLM

_ENGINE_THETA = 10000.0
"""The base that engines take when the config states none."""


def audit_positions(pair: Pair) -> Iterator[Diagnostic]:
    """EA760 base and scaling, EA761 longest position, EA762 multimodal positions."""
    yield from _theta(pair)
    yield from _scaling(pair)
    yield from _length(pair)
    yield from _sections(pair)


def _theta(pair: Pair) -> Iterator[Diagnostic]:
    ours, theirs = pair.draft.rope.theta, pair.target.rope.theta
    if theirs is None or ours == theirs or (ours is None and theirs == _ENGINE_THETA):
        return
    missing = ours is None
    yield Diagnostic(
        "EA760",
        "the draft does not state rope_theta" if missing else "the draft has another rope_theta than the target",
        Severity.WARNING if missing else Severity.NOTE,
        expected=f"{theirs:g} (the target's)",
        found=f"nothing, so the engines take {_ENGINE_THETA:g}" if missing else f"{ours:g}",
        where="rope_theta",
        consequence="none if the draft was trained so; otherwise acceptance drops with every position",
        next_step="state rope_theta as it was in training" if missing else None,
    )


def _scaling(pair: Pair) -> Iterator[Diagnostic]:
    ours, theirs = dict(pair.draft.rope.scaling), dict(pair.target.rope.scaling)
    same_base = pair.draft.rope.theta == pair.target.rope.theta
    if not same_base or _comparable(ours) == _comparable(theirs):
        return
    yield Diagnostic(
        "EA760",
        "the draft has the target's rope_theta but not its rope_scaling",
        Severity.WARNING,
        expected=str(theirs) if theirs else "no rope_scaling",
        found=str(ours) if ours else "no rope_scaling",
        where="rope_scaling",
        consequence="acceptance falls with the length of the context; conversions are known to drop rope_scaling",
        next_step="state rope_scaling as it was in training",
    )


def _comparable(scaling: dict[str, object]) -> dict[str, object]:
    """Without the fields that say the same in several ways, and with numbers as floats."""
    return {
        key: float(value) if isinstance(value, int | float) else value
        for key, value in scaling.items()
        if key not in ("original_max_position_embeddings", "truncate", "finetuned")
    }


def _length(pair: Pair) -> Iterator[Diagnostic]:
    ours, theirs = pair.draft.rope.max_position, pair.target.rope.max_position
    if ours is None or theirs is None or ours >= theirs:
        return
    raised = pair.engine == VLLM
    yield Diagnostic(
        "EA761",
        f"the draft allows {ours} positions, the target {theirs}",
        Severity.NOTE if raised else Severity.WARNING,
        expected=str(theirs),
        found=str(ours),
        where="max_position_embeddings",
        consequence=f"{RELEASES[VLLM]} raises it, and acceptance may drop beyond {ours} tokens"
        if raised
        else f"beyond {ours} tokens acceptance drops, and speculation may be slower than none; "
        f"{RELEASES[VLLM]} raises the limit, SGLang does not",
        next_step=f"limit the context to {ours}, or raise max_position_embeddings and measure long prompts",
    )


def _sections(pair: Pair) -> Iterator[Diagnostic]:
    ours, theirs = pair.draft.rope.mrope_section, pair.target.rope.mrope_section
    if ours == theirs:
        return
    if ours is None:
        yield Diagnostic(
            "EA762",
            "the target has multimodal positions, the draft plain ones",
            Severity.NOTE,
            expected=f"mrope_section {list(theirs or ())}",
            found="no mrope_section",
            where="rope_scaling.mrope_section",
            consequence="the draft counts image tokens as text: right if it was trained so, else acceptance drops "
            "after images",
        )
        return
    yield Diagnostic(
        "EA762",
        "the draft has other multimodal positions than the target",
        Severity.WARNING,
        expected="no mrope_section" if theirs is None else f"mrope_section {list(theirs)}",
        found=f"mrope_section {list(ours)}",
        where="rope_scaling.mrope_section",
        consequence="SGLang reads multimodal positions that the target does not make, or splits them otherwise",
        next_step="state mrope_section as the target does",
    )
