"""The trained pair served by real SGLang is accepted as often as offline."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eagle_adapters.speculation.accept import summarise
from eagle_adapters.speculation.speculate import speculate
from eagle_adapters.testing.pair import load_pair, prompts
from eagle_adapters.verify.sglang.checkpoint import translate
from eagle_adapters.verify.sglang.session import Job

STEPS, NEW_TOKENS = 3, 48


@pytest.mark.pair
@pytest.mark.timeout(1800)
def test_served_acceptance_is_that_measured_offline(session, tmp_path: Path) -> None:
    pair = load_pair()
    rows = prompts(24, 40)
    offline = speculate(pair.load_target(), pair.draft, rows, steps=STEPS, max_new_tokens=NEW_TOKENS)
    expected = summarise(offline.accepted, STEPS, sum(map(len, offline.tokens)), sum(offline.target_passes)).length

    shutil.copytree(pair.target, tmp_path / "target")
    translate(tmp_path / "target")
    outcome = session.run(
        Job(
            str(tmp_path / "target"),
            rows,
            draft=str(pair.draft),
            max_tokens=NEW_TOKENS,
            options={"enable_multimodal": False, "max_total_tokens": 4096},
            together=True,
        )
    )
    assert outcome.error is None, outcome.log[-3000:]
    assert f"boundaries {list(map(int, pair.boundaries))} of 8" in outcome.log
    assert outcome.tokens == [list(row) for row in offline.tokens]
    assert expected.low <= 1 + outcome.accepted / outcome.steps <= expected.high
