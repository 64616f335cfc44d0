"""Diagnostics and errors are data with stable codes."""

from __future__ import annotations

import pickle

import pytest

from eagle_adapters.diagnostics import CODES, Diagnostic, Report, Severity
from eagle_adapters.errors import AdaptationError, BoundaryError, EagleAdaptersError


def test_a_diagnostic_prints_its_parts_in_order() -> None:
    diagnostic = Diagnostic("EA001", "m", expected="e", found="f", where="w", consequence="c", next_step="n")
    assert str(diagnostic).splitlines() == [
        "EA001 error: m",
        "  expected: e",
        "  found: f",
        "  where: w",
        "  then: c",
        "  next: n",
    ]
    assert Diagnostic("EA001", "m").as_dict() == {"code": "EA001", "severity": "error", "message": "m"}


def test_unknown_codes_are_refused() -> None:
    with pytest.raises(KeyError, match="EA000"):
        Diagnostic("EA000", "m")


def test_codes_have_titles() -> None:
    for code, title in CODES.items():
        assert len(code) == 5
        assert code.startswith("EA")
        assert title.endswith(".")


def test_a_report_knows_its_worst() -> None:
    report = Report()
    assert (report.worst, len(report)) == (None, 0)
    report.add("EA001", "n", Severity.NOTE)
    report.add("EA002", "w", Severity.WARNING)
    assert report.worst is Severity.WARNING
    assert report.errors == []
    report.extend([Diagnostic("EA003", "e")])
    assert report.worst is Severity.ERROR
    assert [d.code for d in report.errors] == ["EA003"]


def test_errors_carry_all_diagnostics_and_pickle() -> None:
    error = AdaptationError([Diagnostic("EA401", "a"), Diagnostic("EA402", "b")])
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, [d.message for d in copy.diagnostics]) == ("EA401", ["a", "b"])
    assert "EA402 error: b" in str(copy)
    assert isinstance(BoundaryError(Diagnostic("EA001", "x")), ValueError | EagleAdaptersError)
