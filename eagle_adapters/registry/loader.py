"""Loads `registry.yaml` and `adapters/` as one `Registry`, and says everything that is wrong with them at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from eagle_adapters.boundaries import Convention
from eagle_adapters.diagnostics import Diagnostic, Report
from eagle_adapters.errors import DataError, UsageError
from eagle_adapters.registry.checks import check_adapter, check_index
from eagle_adapters.registry.document import Document, read_document
from eagle_adapters.registry.schema import Adapter, DraftRow, EngineRow, Index, Row
from eagle_adapters.resources import data_root

AnyRow = TypeVar("AnyRow", bound=Row)


@dataclass(frozen=True, slots=True)
class Registry:
    """The data files, valid and in agreement with each other.

    Attributes:
        root: the folder that holds `registry.yaml` and `adapters/`.
        index: `registry.yaml`.
        adapters: family -> its `adapter.yaml`.
    """

    root: Path
    index: Index
    adapters: Mapping[str, Adapter]

    def family_of(self, name: str) -> str:
        """The family with this name or this architecture.

        Raises:
            UsageError: EA117, there is none; names that look alike are suggested.
        """
        if name in self.index.families:
            return name
        by_architecture = {a: family for family, row in self.index.families.items() for a in row.architectures}
        if name in by_architecture:
            return by_architecture[name]
        known = {known.lower(): known for known in (*self.index.families, *by_architecture)}
        close = [known[match] for match in difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.6)]
        raise UsageError(
            Diagnostic(
                "EA117",
                f"the registry has no family or architecture {name!r}",
                next_step=f"did you mean {' or '.join(close)}?" if close else "eagle-adapters list",
            )
        )

    def draft(self, name: str) -> DraftRow | None:
        """What is known about a draft, by its name on the hub (`owner/name`, in any case)."""
        return next((row for known, row in self.index.drafts.items() if known.lower() == name.lower()), None)


def load(root: Path | None = None) -> Registry:
    """The registry under `root`, or the one that comes with this package.

    Raises:
        DataError: EA101 to EA116, all that is wrong at once.
    """
    return _load(data_root() if root is None else root)


def convention_for(draft: str) -> Convention | None:
    """The registered convention of a draft's layer ids, by its name on the hub; None when the draft is not known."""
    row = load().draft(draft)
    return None if row is None else row.convention


@cache
def _load(root: Path) -> Registry:
    registry, report = read(root)
    if registry is None:
        raise DataError(report)
    return registry


def read(root: Path) -> tuple[Registry | None, Report]:
    """The registry under `root` with all findings; None in place of the registry when there are any."""
    report = Report()
    document, index = _parse(root / "registry.yaml", Index, report)
    adapters: dict[str, Adapter] = {}
    for folder in sorted(path for path in (root / "adapters").glob("*") if path.is_dir()):
        adapter_document, adapter = _parse(folder / "adapter.yaml", Adapter, report)
        if adapter is not None:
            adapters[folder.name] = adapter
            report.extend(check_adapter(adapter_document, adapter, folder))
    if index is not None:
        report.extend(check_index(document, index, adapters, root))
    if index is None or len(report):
        return None, report
    return Registry(root, index, adapters), report


def _parse(path: Path, model: type[AnyRow], report: Report) -> tuple[Document, AnyRow | None]:
    document = read_document(path)
    report.extend(document.problems)
    if any(problem.code == "EA111" for problem in document.problems):
        return document, None
    try:
        return document, model.model_validate(document.value)
    except ValidationError as error:
        reported = {problem.where for problem in document.problems}
        for detail in error.errors(include_url=False):
            finding = _finding(document, detail)
            # A value that the reader refused is null here: say it once.
            if finding.where not in reported or detail["type"] == "extra_forbidden":
                report.diagnostics.append(finding)
        return document, None


def _finding(document: Document, detail: ErrorDetails) -> Diagnostic:
    """A schema error with the line of the value; steps of the path that only the schema knows are left out."""
    place: tuple[str | int, ...] = ()
    for step in detail["loc"]:
        if (*place, step) in document.lines:
            place = (*place, step)
    field = ".".join(str(step) for step in detail["loc"] if step != "[key]") or "the file"
    found = None if detail["type"] == "missing" else _short(detail["input"])
    message = f"{field}: {detail['msg'].removeprefix('Value error, ')}"
    return Diagnostic("EA114", message, found=found, where=document.where(place))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def engine_status(row: EngineRow) -> dict[str, Any]:
    """The JSON form of a status: `{status, versions, evidence}`, and the `reason` of a refusal."""
    out: dict[str, Any] = {"versions": None, "evidence": None, **row.model_dump()}
    return {"status": out.pop("status"), **out}
