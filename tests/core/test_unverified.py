"""What is said of an adapted class that nobody has verified: one line with the command that does."""

from __future__ import annotations

import pytest

from eagle_adapters.backends.unverified import command, unverified


def target(name: str) -> type:
    return type(name, (), {"__module__": "vllm.model_executor.models.some"})


def test_a_verified_class_needs_no_word() -> None:
    assert unverified(target("Gemma3ForConditionalGeneration"), "vllm", "0.32.0") is None
    assert unverified(target("Gemma3ForConditionalGeneration"), "vllm", "0.32.0+cpu") is None


def test_the_name_in_the_checkpoint_counts_as_well() -> None:
    assert unverified(target("Other"), "vllm", "0.32.0", architectures=["GPT2LMHeadModel"]) is None


@pytest.mark.parametrize(
    ("name", "version", "verify"),
    [
        ("Gemma3ForConditionalGeneration", "0.31.0", "eagle-adapters verify gemma3 --engine vllm"),
        ("NoSuchForCausalLM", "0.32.0", 'eagle-adapters verify "$(hf download --quiet owner/name)" --engine vllm'),
    ],
)
def test_one_line_names_class_version_and_command(name, version, verify) -> None:
    said = unverified(target(name), "vllm", version, checkpoint="owner/name")
    assert said is not None
    assert "\n" not in said
    assert said.startswith(f"EA406: vllm.model_executor.models.some:{name} ")
    assert f"vllm {version}" in said
    assert said.endswith(verify)


def test_the_command_for_a_folder(tmp_path) -> None:
    folder = tmp_path / "my model"
    folder.mkdir()
    assert command("sglang", None, str(folder)) == f"eagle-adapters verify '{folder}' --engine sglang"
