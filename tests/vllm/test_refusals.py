"""What cannot be captured stops the engine before weights load; what nobody has verified is said in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle_adapters.tiny import tiny_config
from eagle_adapters.verify.draft import save_draft
from eagle_adapters.verify.vllm.session import Job

WHISPER = {
    "architectures": ["WhisperForConditionalGeneration"],
    "model_type": "whisper",
    "vocab_size": 1000,
    "d_model": 128,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 128,
    "decoder_layers": 8,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 128,
    "num_mel_bins": 80,
    "max_source_positions": 100,
    "max_target_positions": 448,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}

MAMBA = {
    "architectures": ["MambaForCausalLM"],
    "model_type": "mamba",
    "vocab_size": 1000,
    "hidden_size": 128,
    "num_hidden_layers": 8,
    "state_size": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def job(folder: Path, config: dict[str, Any], **options: Any) -> Job:
    """An engine for a target of which there is no more than its config: it cannot come as far as the weights."""
    (folder / "target").mkdir()
    (folder / "target" / "config.json").write_text(json.dumps(config))
    width = config.get("hidden_size") or config["d_model"]
    fc, head = torch.zeros(width, 3 * width), torch.zeros(config["vocab_size"], width)
    save_draft(folder / "draft", fc=fc, head=head, ids=(2, 4, 5))
    return Job(str(folder / "target"), [[1, 5, 7]], draft=str(folder / "draft"), options=options)


@pytest.mark.parametrize(
    ("config", "options", "code", "reason"),
    [
        (tiny_config("gemma3n"), {}, "EA421", "Gemma3nTextModel.forward has no loop over its layers"),
        (MAMBA, {}, "EA521", "its layers keep a recurrent state"),
        (WHISPER, {}, "EA526", "an encoder-decoder target"),
        (tiny_config("deepseek_v3"), {"dtype": "float16"}, "EA524", "use --dtype bfloat16"),
    ],
    ids=["gemma3n", "mamba", "whisper", "deepseek in float16"],
)
def test_refused_before_weights_are_looked_for(config, options, code, reason, ours, tmp_path: Path) -> None:
    outcome = ours.run(job(tmp_path, config, **options))
    assert outcome.error is not None
    assert code in outcome.error
    assert reason in outcome.error


def test_the_weights_are_what_is_missed_otherwise(ours, tmp_path: Path) -> None:
    outcome = ours.run(job(tmp_path, tiny_config("gemma2")))
    assert outcome.error is not None
    assert "Cannot find any model weights" in outcome.error


@pytest.mark.parametrize(("name", "said"), [("gptj", 1), ("gemma3", 0)])
def test_a_class_that_nobody_verified_is_said_once(name, said, cases, ours, logs: Path) -> None:
    log = logs / "ours.log"
    before = len(log.read_text("utf-8"))
    outcome = ours.run(cases(name).job(cases(name).draft(), max_tokens=1))
    assert outcome.error is None
    warnings = [line for line in log.read_text("utf-8")[before:].splitlines() if "EA406" in line]
    assert len(warnings) == said
    assert all(f"eagle-adapters verify {cases(name).folder} --engine vllm" in line for line in warnings)
    assert all("WARNING" in line and "GPTJForCausalLM" in line for line in warnings)
