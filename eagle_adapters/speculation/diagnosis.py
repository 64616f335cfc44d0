"""Why served acceptance is what it is: the interface, the weights, positions, the template, or simply a weak draft.

The offline measurement is the yardstick: there the states are known to be right. What the engine loses against it
points to the cause, by signatures of faults that were seen before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.speculation.accept import Acceptance, Interval
from eagle_adapters.speculation.intervals import Z, error_of, length_of, overdispersion
from eagle_adapters.speculation.served import Served
from eagle_adapters.speculation.signatures import SIGNATURES, Cause, Facts

__all__ = ["Cause", "Diagnosis", "Suspicion", "diagnose"]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One cause, and what speaks for it.

    Attributes:
        cause: the cause.
        signature: the name of the pattern, a row of `SIGNATURES`.
        evidence: what was measured, in figures.
        seen: a public case of the same signature.
        next_step: how to make sure.
        findings: codes of `check` that point the same way.
    """

    cause: Cause
    signature: str
    evidence: str
    seen: str
    next_step: str
    findings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "cause": str(self.cause),
            "signature": self.signature,
            "evidence": self.evidence,
            "seen": self.seen,
            "next_step": self.next_step,
            "findings": list(self.findings),
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The likely causes, the likeliest first.

    Attributes:
        suspicions: at least one.
        difference: served minus offline acceptance length, with its 95 % interval.
        offline: the acceptance length offline.
        served: the acceptance length served.
    """

    suspicions: tuple[Suspicion, ...]
    difference: Interval
    offline: Interval
    served: Interval

    @property
    def cause(self) -> Cause:
        """The likeliest cause."""
        return self.suspicions[0].cause

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "cause": str(self.cause),
            "suspicions": [suspicion.as_dict() for suspicion in self.suspicions],
            "offline": self.offline.as_dict(),
            "served": self.served.as_dict(),
            "difference": self.difference.as_dict(),
        }


_UNCLEAR = Suspicion(
    Cause.UNCLEAR,
    "none",
    "the figures fit no known fault: too few rounds, or prompts of another kind than offline",
    "--",
    "measure both on the same prompts, with more of them",
)

_CODES: Mapping[Cause, tuple[str, ...]] = {
    Cause.INTERFACE: ("EA71", "EA72"),
    Cause.WEIGHTS: ("EA73", "EA74", "EA75"),
    Cause.POSITIONS: ("EA76",),
}
"""Codes of `check` that point to a cause."""


def diagnose(
    offline: Acceptance,
    served: Served,
    *,
    variants: Mapping[str, Served] | None = None,
    readings: Sequence[tuple[str, Interval]] = (),
    findings: Iterable[Diagnostic] = (),
) -> Diagnosis:
    """The likely cause of a served acceptance, with the evidence.

    Args:
        offline: measured with the reference drafter on captured states (`eagle-adapters accept`).
        served: what the engine counted on prompts of the same kind.
        variants: more served runs: `images` (prompts with images), `long` (long prompts), `template` (the same prompts
            with the chat template applied).
        readings: offline acceptance lengths of other readings of the ids, by name, from `calibrate`.
        findings: what `check_draft` found, to support a cause.
    """
    spread = overdispersion(offline)
    interval = length_of(served, offline, spread)
    gap = math.hypot(error_of(offline.length), error_of(interval))
    mean = interval.mean - offline.length.mean
    difference = Interval(mean, mean - Z * gap, mean + Z * gap)
    codes = frozenset(finding.code for finding in findings if finding.severity is not Severity.NOTE)
    facts = Facts(offline, served, spread, interval, difference, variants or {}, readings)
    suspicions = []
    for signature in SIGNATURES:
        evidence = signature.tells(facts)
        if evidence is not None:
            support = tuple(sorted(code for code in codes if code.startswith(_CODES.get(signature.cause, ()))))
            suspicions.append(
                Suspicion(signature.cause, signature.name, evidence, signature.seen, signature.next_step, support)
            )
    # what `check` found in the files outweighs what the figures merely allow
    suspicions.sort(key=lambda suspicion: not suspicion.findings)
    return Diagnosis(tuple(suspicions or [_UNCLEAR]), difference, offline.length, interval)
