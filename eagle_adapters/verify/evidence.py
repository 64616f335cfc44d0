"""The result of a verification, and the file it is kept in."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_adapters.backends.base import installed_version
from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.verify.compare import Match


@dataclass(frozen=True, slots=True)
class PromptResult:
    """What was found for one prompt.

    Attributes:
        prompt: its name.
        tokens: how many tokens it had, and how many were generated after it.
        image_positions: how many of the compared positions are image positions.
        matches: one for each boundary and kind of position.
        logits_error: largest difference between the target's logits and those rebuilt from boundary N; None when N was
            not captured.
    """

    prompt: str
    tokens: tuple[int, int]
    image_positions: int
    matches: tuple[Match, ...]
    logits_error: float | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The outcome of one verification.

    Attributes:
        family: the adapter's family, or None for a checkpoint of one's own.
        architecture: the class that was verified.
        engine: where it ran.
        engine_version: its version.
        config_sha256: hash of the config the model was built from.
        num_layers: N.
        boundaries: what was captured.
        tolerance: the largest relative error that passes.
        results: one for each prompt.
        findings: everything that is wrong, and notes.
        versions: of the packages that matter.
    """

    family: str | None
    architecture: str
    engine: str
    engine_version: str
    config_sha256: str
    num_layers: int
    boundaries: tuple[int, ...]
    tolerance: float
    results: tuple[PromptResult, ...]
    findings: tuple[Diagnostic, ...]
    versions: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return all(f.severity is not Severity.ERROR for f in self.findings) and bool(self.results)

    @property
    def max_abs_error(self) -> float:
        """The largest difference to the reference, over all boundaries and prompts."""
        return max((m.max_abs_error for r in self.results for m in r.matches), default=float("nan"))

    @property
    def nearest_wrong_error(self) -> float:
        """The smallest distance of any captured state to the reference of another boundary."""
        return min((m.nearest_wrong_error for r in self.results for m in r.matches), default=float("nan"))

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, as in the evidence file."""
        return {
            "schema": 1,
            "family": self.family,
            "architecture": self.architecture,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "verdict": "pass" if self.passed else "fail",
            "config_sha256": self.config_sha256,
            "num_layers": self.num_layers,
            "boundaries": list(self.boundaries),
            "tolerance": self.tolerance,
            "max_abs_error": self.max_abs_error,
            "nearest_wrong_error": self.nearest_wrong_error,
            "results": [
                {
                    "prompt": r.prompt,
                    "tokens": list(r.tokens),
                    "image_positions": r.image_positions,
                    "logits_error": r.logits_error,
                    "matches": [match.as_dict() for match in r.matches],
                }
                for r in self.results
            ],
            "findings": [finding.as_dict() for finding in self.findings],
            "versions": dict(self.versions),
        }


def package_versions(extra: Sequence[str] = ()) -> dict[str, str]:
    """The versions that a result depends on."""
    names = ("eagle-adapters", "torch", "transformers", *extra)
    found = {name: installed_version(name) or "not installed" for name in names}
    return {"python": platform.python_version(), **found}


def write_evidence(evidence: Evidence, path: Path) -> None:
    """Write the evidence file; a file that is there already is replaced only by a complete new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(evidence.as_dict(), indent=1) + "\n", "utf-8")
    part.replace(path)
