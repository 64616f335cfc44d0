"""`verify` and `demo`: their JSON, their tables, their exit codes, their evidence file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eagle_adapters.cli import main
from eagle_adapters.tiny import save_tiny


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main([*arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_demo_proves_the_default_boundaries_of_kimi(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run(capsys, "demo")
    assert code == 0
    assert (data["target"], data["boundaries"]) == ("Kimi_K25ForConditionalGeneration", [2, 4, 5])
    assert data["verdict"] == "pass"
    assert data["max_abs_error"] < 1e-3 < 1 < data["nearest_wrong_error"]
    assert {finding["code"] for finding in data["lacking"]} == {"EA301"}
    assert [edit["name"] for edit in data["edits"]] == ["eagle3_capture", "get_embed_and_head"]


def test_demo_tells_the_story_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "llama", "--boundaries", "0,8"]) == 0
    text = capsys.readouterr().out
    story = ["lacks:", "has no method `eagle3_capture`", "2. wrapped:", "3. boundaries [0, 8]", "verdict: pass"]
    assert [text.index(part) for part in story] == sorted(text.index(part) for part in story)


def test_verify_writes_the_evidence_it_prints(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    code, data = run(capsys, "verify", "LlamaForCausalLM", "--boundaries", "2,4,5", "--evidence", str(path))
    assert (code, data["verdict"], data["family"]) == (0, "pass", "llama")
    assert json.loads(path.read_text()) == data
    assert [m["boundary"] for m in data["results"][0]["matches"]] == [2, 4, 5]


def test_verify_takes_a_checkpoint_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_tiny("gpt2", tmp_path)
    code, data = run(capsys, "verify", str(tmp_path))
    assert (code, data["architecture"], data["boundaries"]) == (0, "GPT2LMHeadModel", list(range(9)))


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (("verify", "llama", "--boundaries", "two"), 2, "EA901"),
        (("verify", "llama", "--boundaries", "9"), 2, "EA001"),
        (("verify", "lama"), 2, "EA117"),
        (("verify", "gemma3n"), 1, "EA403"),
        (("demo", "llama", "--boundaries", "2,2"), 2, "EA002"),
    ],
)
def test_failures_have_a_code_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], exit_code: int, code: str
) -> None:
    found, data = run(capsys, *arguments)
    assert (found, data["error"][0]["code"]) == (exit_code, code)


@pytest.mark.pair
def test_demo_decodes_with_the_trained_pair_and_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run(capsys, "demo", "llama", "--boundaries", "2", "--decode")
    assert code == 0
    decoding = data["decoding"]
    assert decoding["identical"] is True
    assert decoding["target_passes"] * 2 < decoding["plain_passes"] == decoding["tokens"]
