"""`check_draft`: does this draft fit this target, on which boundaries, in which engine, and how is it served."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagle_adapters.boundaries import Boundary, Convention, Reading, read_ids
from eagle_adapters.diagnostics import Diagnostic, Report, Severity
from eagle_adapters.drafts.audit import Pair, audit
from eagle_adapters.drafts.engine import RELEASES
from eagle_adapters.drafts.launch import launch_command
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.drafts.spec import DraftSpec
from eagle_adapters.drafts.support import Decide, Status, Support, engine_support
from eagle_adapters.drafts.target import TargetSpec, read_target
from eagle_adapters.errors import BoundaryError, DataError, UsageError

NO_STATES = "no_states"
"""The source of the boundaries of a draft that uses no captured states."""

_FINDINGS = ("EA701", "EA702", "EA703")
"""Faults of the draft's files that are findings; others (no such file, no hub) are wrong input."""

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
_BEST = (Status.OK, Status.ADAPTER, Status.BLOCKED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of `check_draft`.

    Attributes:
        verdict: `ok` the engine serves the pair as it is; `adapter` it does with this library installed; `blocked` it
            does not, or would do so wrongly.
        boundaries: the effective boundaries in the order of `fc`, or None while they are not known.
        convention: how the ids are meant, or None.
        source: why (`ConventionSource`, or `no_states`); None when the ids cannot hold.
        findings: what is wrong or worth knowing, the worst first.
        command: the launch command, or None when blocked.
    """

    verdict: Status
    boundaries: tuple[Boundary, ...] | None
    convention: Convention | None
    source: str | None
    findings: tuple[Diagnostic, ...]
    command: str | None

    @property
    def clean(self) -> bool:
        """Whether it may be served: not blocked, and no finding above a note."""
        return self.verdict is not Status.BLOCKED and Report(list(self.findings)).worst in (None, Severity.NOTE)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "verdict": str(self.verdict),
            "boundaries": None if self.boundaries is None else [int(b) for b in self.boundaries],
            "convention": None if self.convention is None else str(self.convention),
            "source": self.source,
            "findings": [finding.as_dict() for finding in self.findings],
            "command": self.command,
        }


def check_draft(
    target: str | Path | TargetSpec,
    draft: str | Path | DraftSpec,
    engine: str | None = None,
    convention: Convention | str | None = None,
    *,
    support: Decide = engine_support,
) -> Verdict:
    """Whether a draft fits a target, without a GPU and without the target's weights.

    Args:
        target: a folder, a config.json, a hub name, or a `TargetSpec`.
        draft: a folder, a config.json alone, a hub name, or a `DraftSpec`.
        engine: `vllm` or `sglang`; None looks at both, reports what concerns one of them as a note, and takes the
            better verdict.
        convention: how the draft's layer ids are meant, if that is known.
        support: decides whether the engine's class needs an adapter.

    Raises:
        DataError: EA700, EA704, EA774, as `read_draft` and `read_target`: something cannot be read at all.
        UsageError: EA901, an unknown engine or convention.
    """
    declared = _convention(convention)
    if engine is not None and engine not in RELEASES:
        raise UsageError(Diagnostic("EA901", "no such engine", expected=", ".join(RELEASES), found=engine))
    target_spec = target if isinstance(target, TargetSpec) else read_target(target)
    try:
        draft_spec = draft if isinstance(draft, DraftSpec) else read_draft(draft)
    except DataError as error:
        if not all(fault.code in _FINDINGS for fault in error.diagnostics):
            raise
        return Verdict(Status.BLOCKED, None, None, None, tuple(error.diagnostics), None)
    reading, findings = _read(draft_spec, target_spec, declared)
    findings += audit(Pair(draft_spec, target_spec, reading, engine))
    return _judge(target_spec, draft_spec, reading, findings, engine, declared, support)


def _convention(convention: Convention | str | None) -> Convention | None:
    try:
        return None if convention is None else Convention(convention)
    except ValueError:
        expected = ", ".join(Convention)
        fault = Diagnostic("EA901", "no such convention", expected=expected, found=str(convention))
        raise UsageError(fault) from None


def _read(draft: DraftSpec, target: TargetSpec, declared: Convention | None) -> tuple[Reading | None, list[Diagnostic]]:
    if not draft.uses_states:
        return None, []
    try:
        registered = _registered(draft, target.num_layers)
        return read_ids(draft.ids, target.num_layers, declared=declared, registered=registered), []
    except BoundaryError as error:
        cause = error.diagnostics[0]
        code = {"EA002": "EA712", "EA004": "EA714"}.get(cause.code, "EA711")
        consequence = {
            "EA712": "vLLM drops the second one, so fc gets too few states; SGLang stops",
            "EA714": "the engines capture the same state twice, or none",
        }.get(code, "the engines stop, or silently deliver one state less")
        return None, [
            Diagnostic(
                code,
                cause.message,
                Severity.ERROR,
                expected=cause.expected,
                found=cause.found,
                where=draft.id_claims[0].where if draft.id_claims else "config.json",
                consequence=consequence,
                next_step="correct the layer ids in config.json",
            )
        ]


def _registered(draft: DraftSpec, num_layers: int) -> Convention | None:
    """The convention that the registry holds for this checkpoint; its ids and the target's layers must agree too."""
    from eagle_adapters import registry

    try:
        known = registry.load()
    except DataError:
        return None  # without its data files the library still reads and audits
    for name in _hub_names(draft.name):
        row = known.draft(name)
        if row is not None and row.ids == draft.ids and row.num_layers == num_layers:
            return row.convention
    return None


def _hub_names(name: str) -> Iterable[str]:
    """The hub names that a path may stand for: itself, its last two parts, or a folder of the hub's cache."""
    parts = [part for part in Path(name).parts if not part.endswith(".json")]
    yield "/".join(parts[-2:])
    for part in parts:
        cached = re.fullmatch(r"models--(.+?)--(.+)", part)
        if cached is not None:
            yield f"{cached[1]}/{cached[2]}"


def _judge(
    target: TargetSpec,
    draft: DraftSpec,
    reading: Reading | None,
    findings: list[Diagnostic],
    engine: str | None,
    declared: Convention | None,
    support: Decide,
) -> Verdict:
    engines = tuple(RELEASES) if engine is None else (engine,)
    answers = {name: support(target, name) for name in engines}
    chosen = min(engines, key=lambda name: _BEST.index(answers[name].status))
    for name, answer in answers.items():
        findings += _explain(target, name, answer, wanted=engine is not None or answer.status is Status.BLOCKED)
    if engine is None and answers[chosen].status is not Status.BLOCKED:
        # the other engine's refusal must not count against the one that works
        findings = [
            replace(finding, severity=Severity.NOTE) if finding.code == "EA772" else finding for finding in findings
        ]
    errors = any(finding.severity is Severity.ERROR for finding in findings)
    status = Status.BLOCKED if errors else answers[chosen].status
    misread = any(finding.code == "EA716" and finding.severity is not Severity.NOTE for finding in findings)
    if status is Status.OK and misread:
        status = Status.ADAPTER  # the engine's class is complete, but must be handed other ids
    boundaries = () if not draft.uses_states else reading.boundaries if reading is not None else None
    return Verdict(
        verdict=status,
        boundaries=boundaries,
        convention=None if reading is None else reading.convention,
        source=str(reading.source) if reading is not None else None if draft.uses_states else NO_STATES,
        findings=tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.severity))),
        command=None if status is Status.BLOCKED else launch_command(chosen, target, draft, boundaries, declared),
    )


def _explain(target: TargetSpec, engine: str, answer: Support, *, wanted: bool) -> list[Diagnostic]:
    name = target.architectures[0] if target.architectures else "the target"
    if answer.status is Status.OK:
        return []
    if answer.status is Status.ADAPTER and not answer.known:
        return [
            Diagnostic(
                "EA773",
                f"{name} has no complete EAGLE-3 interface in {RELEASES[engine]}; can it be adapted?",
                Severity.WARNING if wanted else Severity.NOTE,
                expected="a class with the interface, or a family of the registry",
                found=answer.reason,
                where="architectures",
                consequence="without the interface the engine stops when it loads the draft",
                next_step=answer.next_step or f"eagle-adapters inspect {name} --engine {engine}",
            )
        ]
    blocked = answer.status is Status.BLOCKED
    return [
        Diagnostic(
            "EA772",
            f"{name} cannot be served with a draft in {RELEASES[engine]}"
            if blocked
            else f"{name} needs an adapter in {RELEASES[engine]}",
            Severity.ERROR if blocked else Severity.NOTE,
            expected="the interface in the engine's own class",
            found=answer.reason,
            where="architectures",
            consequence="the engine stops when it loads the draft"
            + ("" if blocked else ", unless eagle-adapters is installed"),
            next_step=None if blocked else f"pip install eagle-adapters in the environment of {engine}",
        )
    ]
