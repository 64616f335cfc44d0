"""Proof by values: what an engine captured, against an independent reference, boundary by boundary."""

from eagle_adapters.verify.compare import Match, Reference, compare
from eagle_adapters.verify.evidence import Evidence, PromptResult, write_evidence
from eagle_adapters.verify.runner import Captured, Prompt, Runner, runner_for
from eagle_adapters.verify.verification import verify

__all__ = [
    "Captured",
    "Evidence",
    "Match",
    "Prompt",
    "PromptResult",
    "Reference",
    "Runner",
    "compare",
    "runner_for",
    "verify",
    "write_evidence",
]
