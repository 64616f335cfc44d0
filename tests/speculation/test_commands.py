"""`accept` and `calibrate` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle_adapters.cli.app import run
from eagle_adapters.cli.prompts import read_prompts
from eagle_adapters.errors import DataError
from eagle_adapters.testing.pair import Pair, prompts


def write_prompts(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in prompts(count)))
    return path


@pytest.mark.pair
def test_accept_prints_and_writes_the_acceptance(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out, plot = write_prompts(tmp_path / "prompts.jsonl", 6), tmp_path / "out.json", tmp_path / "rates.png"
    asked = ["accept", str(pair.target), "--draft", str(pair.draft), "--prompts", str(file), "--max-new-tokens", "20"]
    assert run([*asked, "--out", str(out), "--plot", str(plot), "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(out.read_text())
    assert printed["prompts"] == 6
    assert printed["new_tokens"] == 120
    assert len(printed["rates"]) == 3
    length = printed["acceptance_length"]
    assert 1 <= length["low"] <= length["mean"] <= length["high"] <= 4
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert run(asked) == 0
    table = capsys.readouterr().out
    assert "acceptance length" in table
    assert f"{length['mean']:.3f}" in table


@pytest.mark.pair
def test_calibrate_names_the_right_boundaries(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_prompts(tmp_path / "prompts.jsonl", 24)
    asked = ["calibrate", str(pair.target), "--draft", str(pair.draft), "--prompts", str(file)]
    assert run([*asked, "--max-new-tokens", "28", "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["boundaries"] == [2, 4, 5]
    assert "layer_output" in printed["conventions"]
    assert run([*asked, "--max-new-tokens", "3"]) == 2
    assert "EA806" in capsys.readouterr().err


@pytest.mark.pair
def test_prompts_may_be_text_or_json(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text('def f():\n{"prompt": "class A"}\n\n{"input_ids": [1, 2]}\n{not json\n')
    expected = [list(b"def f():"), list(b"class A"), [1, 2], list(b"{not json")]
    assert read_prompts(file, pair.target) == expected


@pytest.mark.parametrize("text", ["", "\n\n", '{"input_ids": []}', '{"input_ids": [1.5]}', '{"text": "no"}', "plain"])
def test_prompts_that_cannot_be_read_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text(text)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="EA807"):
        read_prompts(file, tmp_path)
