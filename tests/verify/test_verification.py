"""The whole verification with runners that are wrong on purpose, the evidence file, and checkpoints of one's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.errors import BoundaryError, ContractError, DataError
from eagle_adapters.tiny import picture, save_tiny, tiny_config
from eagle_adapters.verify import Captured, Prompt, runner_for, verify, write_evidence

REAL = runner_for("transformers")


class Shifted:
    """Captures one boundary too late, as an engine with the wrong convention does."""

    engine = "transformers"

    def version(self) -> str:
        return REAL.version()

    def takes_pictures(self, model_type: str) -> bool:
        return True

    def remarks(self) -> Sequence[Diagnostic]:
        return ()

    def run(
        self, checkpoint: Path, prompts: Sequence[Prompt], boundaries: Sequence[int], max_new_tokens: int
    ) -> Sequence[Captured]:
        late = REAL.run(checkpoint, prompts, [b + 1 for b in boundaries], max_new_tokens)
        return [replace(c, states={b: c.states[b + 1] for b in boundaries}) for c in late]


class Truncated(Shifted):
    """Loses the last boundary."""

    def run(
        self, checkpoint: Path, prompts: Sequence[Prompt], boundaries: Sequence[int], max_new_tokens: int
    ) -> Sequence[Captured]:
        whole = REAL.run(checkpoint, prompts, boundaries, max_new_tokens)
        return [replace(c, states={b: s for b, s in c.states.items() if b != boundaries[-1]}) for c in whole]


def test_an_engine_that_shifts_fails_with_the_reason() -> None:
    evidence = verify("llama", Shifted(), boundaries=[2, 4, 5])
    assert not evidence.passed
    assert [f.code for f in evidence.findings] == ["EA602"] * 3
    assert evidence.as_dict()["verdict"] == "fail"


class Blind(Shifted):
    """Right, but cannot be given a picture."""

    def takes_pictures(self, model_type: str) -> bool:
        return False

    def run(
        self, checkpoint: Path, prompts: Sequence[Prompt], boundaries: Sequence[int], max_new_tokens: int
    ) -> Sequence[Captured]:
        return REAL.run(checkpoint, prompts, boundaries, max_new_tokens)


def test_an_engine_without_pictures_is_verified_with_text_and_says_so() -> None:
    evidence = verify("kimi_k25", Blind(), boundaries=[2])
    assert evidence.passed
    assert [r.prompt for r in evidence.results] == ["text"]
    assert [(f.code, f.severity, f.next_step) for f in evidence.findings] == [
        ("EA613", Severity.WARNING, "text only was proven")
    ]


def test_an_engine_that_loses_a_boundary_fails() -> None:
    evidence = verify("llama", Truncated(), boundaries=[2, 8])
    assert [f.message for f in evidence.findings] == ["boundary 8 was not captured"]


def test_a_checkpoint_of_ones_own_and_a_picture_of_ones_own(tmp_path: Path) -> None:
    image_module = pytest.importorskip("PIL.Image")
    image_module.new("RGB", (80, 40), (200, 30, 60)).save(tmp_path / "red.png")
    folder = save_tiny("kimi_k25", tmp_path / "checkpoint", seed=5)
    evidence = verify(folder, REAL, boundaries=[5, 2, 4], image=picture(tmp_path / "red.png"))
    assert evidence.passed
    assert (evidence.family, evidence.boundaries) == (None, (2, 4, 5))
    assert [r.image_positions for r in evidence.results] == [0, 4]


def test_equal_seeds_give_equal_evidence_and_the_file_holds_it_all(tmp_path: Path) -> None:
    first, second = (verify("llama", REAL, boundaries=[0, 8], seed=4) for _ in range(2))
    assert first == second
    path = tmp_path / "new" / "evidence.json"
    write_evidence(first, path)
    kept = json.loads(path.read_text())
    assert kept == json.loads(json.dumps(first.as_dict()))
    assert (kept["verdict"], kept["engine"], kept["family"], kept["schema"]) == ("pass", "transformers", "llama", 1)
    assert {"torch", "transformers", "python"} <= kept["versions"].keys()
    assert [p.name for p in path.parent.iterdir()] == ["evidence.json"]


def test_the_config_hash_ignores_the_layout_of_the_file(tmp_path: Path) -> None:
    folder = save_tiny("llama", tmp_path)
    fields = json.loads((folder / "config.json").read_text())
    before = verify(folder, REAL, boundaries=[2]).config_sha256
    (folder / "config.json").write_text(json.dumps(dict(reversed(fields.items())), indent=7))
    assert verify(folder, REAL, boundaries=[2]).config_sha256 == before


@pytest.mark.parametrize(("boundaries", "code"), [([9], "EA001"), ([2, 2], "EA002")])
def test_bad_boundaries(boundaries: list[int], code: str) -> None:
    with pytest.raises(BoundaryError, match=code):
        verify("llama", REAL, boundaries=boundaries)


def test_bad_targets(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="EA106"):
        verify(tmp_path, REAL)
    with pytest.raises(DataError, match="EA102"):
        verify("no_such_family", REAL)
    with pytest.raises(ContractError, match="EA306"):
        runner_for("tensorrt")


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="EA104"):
        picture(tmp_path / "broken.png")


def test_configs_that_transformers_cannot_build() -> None:
    fields: dict[str, Any] = {**tiny_config("llama"), "architectures": ["NoSuchModel"]}
    with pytest.raises(DataError, match="EA103"):
        save_tiny(fields, Path("never-written"))
    assert not Path("never-written").exists()
