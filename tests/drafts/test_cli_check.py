"""`eagle-adapters check` as a user runs it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle_adapters.cli import main
from eagle_adapters.testing import checkpoints as small

Make = Callable[..., Path]


def test_json_has_exactly_the_promised_keys(
    make_draft: Make, make_target: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = make_draft(small.llama_config([2, 30, 58]), small.llama_tensors())
    target = make_target(small.kimi_config())
    assert main(["check", str(target), "--draft", str(draft), "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == ["verdict", "boundaries", "convention", "source", "findings", "command"]
    assert data["verdict"] == "ok"
    assert data["boundaries"] == [2, 30, 58]
    assert (data["convention"], data["source"]) == ("boundary", "default_triple")
    assert {finding["severity"] for finding in data["findings"]} <= {"note"}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_command_serves_this_pair(
    engine: str, make_draft: Make, make_target: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = make_draft(small.llama_config([2, 30, 58]), small.llama_tensors(), name="a draft")
    target = make_target(small.kimi_config())
    assert main(["check", str(target), "--draft", str(draft), "--engine", engine, "--format", "json"]) == 0
    words = shlex.split(json.loads(capsys.readouterr().out)["command"])
    if engine == "vllm":
        assert words[:3] == ["vllm", "serve", str(target.parent)]
        assert json.loads(words[words.index("--speculative-config") + 1]) == {
            "method": "eagle3", "model": str(draft), "num_speculative_tokens": 3,
        }  # fmt: skip
    else:
        assert words[:5] == ["python", "-m", "sglang.launch_server", "--model-path", str(target.parent)]
        assert words[words.index("--speculative-draft-model-path") + 1] == str(draft)
        assert words[words.index("--speculative-num-draft-tokens") + 1] == "4"
    assert "--trust-remote-code" in words  # the config has an auto_map


def test_speculators_drafts_keep_their_number_of_steps(
    make_draft: Make, make_target: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = make_draft(small.speculators_config([2, 16, 29]), small.llama_tensors(at="layers.0."))
    target = make_target(small.target_config())
    assert main(["check", str(target), "--draft", str(draft), "--engine", "vllm", "--format", "json"]) == 0
    assert '"num_speculative_tokens": 5' in json.loads(capsys.readouterr().out)["command"]


def test_findings_end_with_code_1_and_say_what_would_happen(
    make_draft: Make, make_target: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = make_draft(small.llama_config([4, 20, 40]), small.llama_tensors())
    target = make_target(small.target_config(layers=45))
    assert main(["check", str(target), "--draft", str(draft)]) == 1
    shown = capsys.readouterr().out
    assert "EA713 warning" in shown
    assert "then: " in shown
    assert "next: " in shown
    arguments = ["check", str(target), "--draft", str(draft), "--convention", "boundary", "--engine", "vllm"]
    assert main(arguments) == 1  # decided now, but the V2 runner would take its default
    assert "EA716" in capsys.readouterr().out


def test_nested_ids_that_only_the_v1_runner_reads_choose_it(
    make_draft: Make, make_target: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = make_draft(small.llama_config([24, 30, 36]), small.llama_tensors())
    target = make_target(small.target_config("GptOssForCausalLM", 36))
    main(["check", str(target), "--draft", str(draft), "--engine", "vllm", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["command"].startswith("VLLM_USE_V2_MODEL_RUNNER=0 vllm serve")


@pytest.mark.parametrize(
    "options",
    [["--engine", "tensorrt"], ["--convention", "sideways"], ["--draft", "nowhere/at/all"], []],
    ids=["engine", "convention", "draft", "no draft"],
)
def test_wrong_use_ends_with_code_2(options: list[str], make_draft: Make, make_target: Make) -> None:
    draft = make_draft(small.llama_config(), small.llama_tensors())
    target = make_target(small.target_config())
    given = options if options and options[0] == "--draft" else ["--draft", str(draft), *options] if options else []
    assert main(["check", str(target), *given]) == 2
