"""The trained pair served by real vLLM is accepted as often as offline."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from eagle_adapters.speculation.accept import summarise
from eagle_adapters.speculation.speculate import speculate
from eagle_adapters.testing.pair import load_pair, prompts
from eagle_adapters.verify.vllm.checkpoint import modalities, translate
from eagle_adapters.verify.vllm.session import Job

STEPS, NEW_TOKENS = 3, 48


@pytest.mark.pair
@pytest.mark.timeout(1800)
def test_served_acceptance_is_that_measured_offline(ours, tmp_path: Path) -> None:
    pair = load_pair()
    rows = prompts(24, 40)
    offline = speculate(pair.load_target(), pair.draft, rows, steps=STEPS, max_new_tokens=NEW_TOKENS)
    expected = summarise(offline.accepted, STEPS, sum(map(len, offline.tokens)), sum(offline.target_passes)).length

    shutil.copytree(pair.target, tmp_path / "target")
    translate(tmp_path / "target")
    config = json.loads((tmp_path / "target" / "config.json").read_text("utf-8"))
    outcome = ours.run(
        Job(
            str(tmp_path / "target"),
            rows,
            draft=str(pair.draft),
            max_tokens=NEW_TOKENS,
            options={"limit_mm_per_prompt": dict.fromkeys(modalities(config), 0), "max_num_seqs": 24},
            speculation={"num_speculative_tokens": STEPS},
        )
    )
    assert outcome.error is None
    assert outcome.workers[0]["layers"] == [list(map(int, pair.boundaries))]
    assert outcome.tokens == [list(row) for row in offline.tokens]
    assert expected.low <= 1 + outcome.accepted / outcome.rounds <= expected.high
