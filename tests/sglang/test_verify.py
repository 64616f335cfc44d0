"""`verify --engine sglang` in the session of the suite: every boundary, text and picture."""

from __future__ import annotations

import contextlib

from sglang_cases import HERE

from eagle_adapters.registry import load
from eagle_adapters.verify import verify
from eagle_adapters.verify.sglang import SGLangRunner


class InThisSession(SGLangRunner):
    """The runner with a session that is there already."""

    def __init__(self, session):
        self._session = session

    def start(self):
        return contextlib.nullcontext(self._session)


def test_kimi_is_verified_with_text_and_a_picture(session, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE / "standin"))
    evidence = verify("kimi_k25", InThisSession(session))
    assert evidence.passed
    assert evidence.boundaries == tuple(range(9))
    assert [result.prompt for result in evidence.results] == ["text", "image"]
    assert evidence.results[1].image_positions > 0
    assert evidence.max_abs_error < 1e-3 < 1 < evidence.nearest_wrong_error
    assert [finding.code for finding in evidence.findings] == ["EA616"]
    row = load().index.families["kimi_k25"].engines["sglang"]
    assert (row.status, row.versions) == ("verified", f"=={evidence.engine_version}")
