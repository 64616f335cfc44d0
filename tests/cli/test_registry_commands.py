"""`list`, `show`, `registry` and `doctor`, run as a user runs them."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import EntryPoint

import pytest

from eagle_adapters.cli import doctor, main
from eagle_adapters.registry import json_schema, load
from eagle_adapters.resources import ENV, data_root


@pytest.fixture
def ask(capsys):
    """Run a command with `--format json`; gives the exit code and the data."""

    def run(*arguments):
        code = main([*arguments, "--format", "json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def spoilt(tmp_path):
    """A copy of the data files with two errors in them."""
    shutil.copytree(data_root() / "adapters", tmp_path / "adapters")
    text = (data_root() / "registry.yaml").read_text("utf-8")
    (tmp_path / "registry.yaml").write_text(text.replace("version: 1", "version: 0.10") + "surplus: yes\n", "utf-8")
    return tmp_path


def test_list(ask):
    code, families = ask("list")

    assert code == 0
    assert [family["family"] for family in families] == list(load().index.families)
    by_name = {family["family"]: family for family in families}
    kimi = by_name["kimi_k25"]
    assert set(kimi) == {"family", "architectures", "engines"}
    assert kimi["architectures"] == ["Kimi_K25ForConditionalGeneration", "KimiK25ForConditionalGeneration"]
    assert set(kimi["engines"]) == {"transformers", "vllm", "sglang"}
    for family in families:
        for status in family["engines"].values():
            assert {"status", "versions", "evidence"} <= set(status)
            assert (status["status"] == "verified") == (status["evidence"] is not None)
            if status["evidence"]:
                assert (data_root() / status["evidence"]).is_file()


def test_list_as_a_table(capsys):
    assert main(["list"]) == 0

    text = capsys.readouterr().out
    for family, row in load().index.families.items():
        assert family in text
        assert all(architecture in text for architecture in row.architectures)


@pytest.mark.parametrize("name", ["kimi_k25", "KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"])
def test_show(ask, name):
    code, data = ask("show", name)

    assert code == 0
    assert data["family"] == "kimi_k25"
    assert data["engines"]["vllm"]["chain"] == ["language_model", "model"]
    assert data["engines"]["sglang"]["stream"] == "callback"
    assert data["drafts"]["AQ-MedAI/Kimi-K25-eagle3"]["ids"] == [2, 30, 58]
    assert all(quirk["why"] and quirk["upstream"] and quirk["remove_when"] for quirk in data["quirks"])


def test_show_as_a_table(capsys):
    assert main(["show", "kimi_k25"]) == 0

    text = capsys.readouterr().out
    assert "target.language_model.model" in text
    assert "AQ-MedAI/Kimi-K25-eagle3" in text


def test_show_suggests_the_nearest_name(capsys):
    assert main(["show", "kimi_k2.5"]) == 2
    assert "did you mean kimi_k25?" in capsys.readouterr().err


def test_validate_the_shipped_files(ask):
    code, data = ask("registry", "validate")

    assert code == 0
    assert data == {
        "root": str(data_root()),
        "valid": True,
        "families": len(load().index.families),
        "findings": [],
    }


@pytest.mark.parametrize("name", [".", "registry.yaml"])
def test_validate_a_spoilt_folder(ask, spoilt, name):
    code, data = ask("registry", "validate", str(spoilt / name))

    assert code == 1
    assert not data["valid"]
    assert [finding["code"] for finding in data["findings"]] == ["EA113", "EA113", "EA114"]
    assert all(":" in finding["where"] for finding in data["findings"])


def test_validate_a_folder_without_a_registry(capsys, tmp_path):
    assert main(["registry", "validate", str(tmp_path)]) == 1
    assert "EA111 error: registry.yaml cannot be read" in capsys.readouterr().out


def test_schema(ask, capsys):
    assert ask("registry", "schema") == (0, json_schema("registry"))
    assert ask("registry", "schema", "adapter") == (0, json_schema("adapter"))
    assert main(["registry", "schema", "adapter", "--format", "table"]) == 0
    assert "remove_when" in capsys.readouterr().out


def test_doctor(ask, monkeypatch):
    monkeypatch.setenv("EAGLE_ADAPTERS_TEST", "seen")

    code, data = ask("doctor")

    assert code == 0
    assert data["packages"]["torch"]
    assert data["packages"]["transformers"] == load().index.families["kimi_k25"].engines["transformers"].versions[2:]
    assert data["data"] == str(data_root())
    assert data["environment"]["EAGLE_ADAPTERS_TEST"] == "seen"
    assert data["findings"] == []


def test_doctor_says_when_the_plug_ins_are_switched_off(ask, monkeypatch):
    monkeypatch.setenv("EAGLE_ADAPTERS", "off")

    code, data = ask("doctor")

    assert code == 0
    assert [(finding["code"], finding["severity"]) for finding in data["findings"]] == [("EA903", "warning")]


def test_doctor_names_what_is_wrong_with_the_data(ask, spoilt, monkeypatch):
    monkeypatch.setenv(ENV, str(spoilt))

    code, data = ask("doctor")

    assert code == 1
    assert [finding["code"] for finding in data["findings"]] == ["EA113", "EA113", "EA114"]


def test_doctor_without_data(ask, tmp_path, monkeypatch):
    monkeypatch.setenv(ENV, str(tmp_path))

    code, data = ask("doctor")

    assert code == 1
    assert data["data"] is None
    assert [finding["code"] for finding in data["findings"]] == ["EA101"]


@pytest.mark.parametrize(
    ("version", "points", "allowed", "codes"),
    [
        ("0.32.0", True, None, {"EA902"}),
        ("0.32.0", True, "eagle_adapters,other", {"EA902"}),
        ("0.32.0", True, "other", {"EA902", "EA903"}),
        ("0.32.0", False, None, {"EA902", "EA903"}),
        ("0.1.0", True, None, {"EA306"}),
    ],
)
def test_doctor_beside_an_engine(ask, monkeypatch, version, points, allowed, codes):
    """The engine's metadata is made up: the plug-in must be findable, the release known, its faults named."""
    installed = doctor._packages()
    monkeypatch.setattr(doctor, "_packages", lambda: {**installed, "vllm": version})
    point = EntryPoint("eagle_adapters", "eagle_adapters.plugins.vllm:register", "vllm.general_plugins")
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [point] if points and group == point.group else []
    )
    if allowed is not None:
        monkeypatch.setenv("VLLM_PLUGINS", allowed)

    code, data = ask("doctor")

    assert {finding["code"] for finding in data["findings"]} == codes
    assert code == (0 if codes == {"EA902"} else 1)
    assert data["plugins"]["vllm"] == (point.value if points else None)
