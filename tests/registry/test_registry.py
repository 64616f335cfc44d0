"""The registry as a whole: what is accepted, and that everything wrong with it is said at once, with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from jsonschema import Draft202012Validator

from eagle_adapters.boundaries import Convention
from eagle_adapters.errors import DataError, UsageError
from eagle_adapters.registry import config_digest, engine_status, json_schema, load, read

TINY = {"architectures": ["AcmeForCausalLM"], "model_type": "acme", "num_hidden_layers": 8}

REGISTRY = """\
version: 1
families:
  acme:
    architectures: [AcmeForCausalLM]
    engines:
      transformers:
        status: verified
        versions: "==5.19.0"
        evidence: adapters/acme/evidence/transformers-5.19.0.json
      vllm: {status: unproven}
      sglang: {status: refused, reason: it has no such class}
drafts:
  someone/acme-eagle3:
    family: acme
    num_layers: 61
    ids: [1, 29, 57]
    convention: layer_output
    source: https://example.org/acme
"""

ADAPTER = """\
family: acme
title: Acme
engines:
  transformers:
    architecture: AcmeForCausalLM
    module: transformers.models.acme
    chain: [model]
    stream: single
    releases: ["5.19.0"]
  vllm:
    architecture: AcmeForCausalLM
    module: vllm.model_executor.models.acme
    chain: [model]
    stream: pair
    releases: ["0.32.0"]
"""

EVIDENCE = {
    "family": "acme",
    "engine": "transformers",
    "engine_version": "5.19.0",
    "verdict": "pass",
    "config_sha256": config_digest(TINY),
}


class Data:
    """A data folder that a test can spoil."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("registry.yaml", REGISTRY)
        self.write("adapters/acme/adapter.yaml", ADAPTER)
        self.write("adapters/acme/tiny.json", json.dumps(TINY))
        self.write("adapters/acme/evidence/transformers-5.19.0.json", json.dumps(EVIDENCE))

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), "utf-8")

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text("utf-8")
        assert old in text
        self.write(name, text.replace(old, new, 1))

    def findings(self) -> list[tuple[str, str]]:
        """Code and `file:line` of every finding."""
        registry, report = read(self.root)
        assert (registry is None) == bool(len(report))
        return [(finding.code, str(finding.where).removeprefix(f"{self.root}/")) for finding in report]

    def messages(self) -> str:
        return str(read(self.root)[1])


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path)


def test_a_valid_folder(data):
    registry, report = read(data.root)

    assert not len(report)
    assert registry.family_of("acme") == registry.family_of("AcmeForCausalLM") == "acme"
    assert registry.adapters["acme"].engines["vllm"].chain == ("model",)
    assert registry.draft("SomeOne/Acme-EAGLE3").convention is Convention.LAYER_OUTPUT
    assert registry.draft("someone/else") is None
    engines = registry.index.families["acme"].engines
    assert engine_status(engines["transformers"]) == {
        "status": "verified",
        "versions": "==5.19.0",
        "evidence": "adapters/acme/evidence/transformers-5.19.0.json",
    }
    assert engine_status(engines["sglang"]) == {
        "status": "refused",
        "versions": None,
        "evidence": None,
        "reason": "it has no such class",
    }


def test_rows_cannot_be_changed(data):
    registry, _ = read(data.root)

    with pytest.raises(ValueError, match="frozen"):
        registry.adapters["acme"].title = "other"


def test_everything_wrong_is_said_at_once(data):
    data.change("registry.yaml", "version: 1", "version: 2")
    data.change("registry.yaml", "vllm: {status: unproven}", "vllm: {status: supported}")
    data.change("registry.yaml", "num_layers: 61", "num_layers: 61\n    num_layers: 62")
    data.change("registry.yaml", "convention: layer_output", "convention: no")
    data.change("adapters/acme/adapter.yaml", "stream: single", "streams: single")
    data.change("adapters/acme/adapter.yaml", '["0.32.0"]', "[0.32]")

    assert data.findings() == [
        ("EA112", "registry.yaml:16"),
        ("EA113", "registry.yaml:18"),
        ("EA114", "registry.yaml:1"),
        ("EA114", "registry.yaml:10"),
        ("EA113", "adapters/acme/adapter.yaml:15"),
        ("EA114", "adapters/acme/adapter.yaml:4"),
        ("EA114", "adapters/acme/adapter.yaml:8"),
    ]


def test_loading_a_wrong_folder_raises_all_of_it(data):
    data.change("registry.yaml", "version: 1", "version: 2\nextra: x")

    with pytest.raises(DataError) as caught:
        load(data.root)
    assert [finding.code for finding in caught.value.diagnostics] == ["EA114", "EA114"]
    assert "extra" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('versions: "==5.19.0"', 'versions: ">=5.16,<5.20"', 8),
        ('versions: "==5.19.0"', 'versions: "==5.*"', 8),
        ("        evidence: adapters/acme/evidence/transformers-5.19.0.json\n", "", 6),
        ("evidence: adapters/acme/", "evidence: /tmp/acme/", 9),
        ("evidence: adapters/acme/", "evidence: adapters/acme/../acme/", 9),
        ("{status: unproven}", "{status: unproven, versions: '==1'}", 10),
        ("{status: refused, reason: it has no such class}", "{status: refused}", 11),
        ("{status: refused, reason: it has no such class}", "{status: refused, reason: ' '}", 11),
        ("acme:\n", "Acme:\n", 3),
        ("[AcmeForCausalLM]", "[]", 4),
        ("      vllm:", "      tensorrt:", 10),
        ("someone/acme-eagle3:", "acme-eagle3:", 13),
        ("num_layers: 61", "num_layers: 57", 13),
        ("ids: [1, 29, 57]", "ids: ['1', 29, 57]", 16),
        ("source: https://example.org/acme", "source: heard it somewhere", 18),
    ],
)
def test_what_a_status_or_a_draft_may_not_say(data, old, new, line):
    data.change("registry.yaml", old, new)

    registry, report = read(data.root)

    assert registry is None
    assert ("EA114", f"{data.root}/registry.yaml:{line}") in [(finding.code, finding.where) for finding in report]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("family", "other"),
        ("engine", "vllm"),
        ("engine_version", "5.18.0"),
        ("verdict", "fail"),
        ("config_sha256", config_digest({**TINY, "num_hidden_layers": 9})),
        ("verdict", None),
    ],
)
def test_evidence_must_agree_with_the_status(data, field, value):
    data.write("adapters/acme/evidence/transformers-5.19.0.json", json.dumps({**EVIDENCE, field: value}))

    assert data.findings() == [("EA115", "registry.yaml:9")]
    assert f"does not agree: {field}" in data.messages()


def test_evidence_of_a_build_of_the_same_release_agrees(data):
    data.write(
        "adapters/acme/evidence/transformers-5.19.0.json", json.dumps({**EVIDENCE, "engine_version": "5.19.0+cpu"})
    )

    assert data.findings() == []


@pytest.mark.parametrize("text", [None, "", "[]", "[1]", '"text"', "{"])
def test_evidence_must_be_there_and_readable(data, text):
    path = data.root / "adapters/acme/evidence/transformers-5.19.0.json"
    if text is None:
        path.unlink()
    else:
        path.write_text(text, "utf-8")

    findings = data.findings()
    assert findings
    assert {code for code, _ in findings} == {"EA115"}
    assert "eagle-adapters verify acme --engine transformers" in data.messages()


def test_a_changed_tiny_config_makes_its_evidence_stale(data):
    data.write("adapters/acme/tiny.json", json.dumps({**TINY, "num_hidden_layers": 9}))

    assert data.findings() == [("EA115", "registry.yaml:9")]


def test_an_architecture_belongs_to_one_family(data):
    data.change(
        "registry.yaml",
        "  acme:",
        "  twin:\n    architectures: [AcmeForCausalLM]\n    engines: {vllm: {status: unproven}}\n  acme:",
    )
    data.write("adapters/twin/adapter.yaml", ADAPTER.replace("acme", "twin").replace("AcmeF", "TwinF"))
    data.write("adapters/twin/tiny.json", json.dumps({"architectures": ["TwinForCausalLM"]}))

    found = data.findings()
    assert ("EA116", "registry.yaml:7") in found
    assert "AcmeForCausalLM is listed twice" in data.messages()


def test_index_and_adapters_must_name_each_other(data):
    data.change(
        "registry.yaml",
        "  acme:",
        "  ghost:\n    architectures: [GhostForCausalLM]\n    engines: {vllm: {status: unproven}}\n  acme:",
    )
    data.write("adapters/orphan/adapter.yaml", ADAPTER.replace("family: acme", "family: orphan"))
    data.write("adapters/orphan/tiny.json", json.dumps(TINY))

    messages = data.messages()
    assert "ghost has no adapter" in messages
    assert "the adapter orphan is not in the index" in messages
    assert {code for code, _ in data.findings()} == {"EA116"}


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("adapters/acme/adapter.yaml", "family: acme", "family: other", "the adapter's family is not its folder acme"),
        ("adapters/acme/adapter.yaml", "architecture: Acme", "architecture: Other", "tiny.json of acme is of another"),
        ("registry.yaml", "[AcmeForCausalLM]", "[OtherForCausalLM]", "architecture of the adapter acme is not listed"),
        ("registry.yaml", "      vllm: {status: unproven}\n", "", "acme has no status for vllm"),
        (
            "registry.yaml",
            "{status: refused, reason: it has no such class}",
            "{status: unproven}",
            "nothing about sglang",
        ),
        ("registry.yaml", "family: acme", "family: other", "the family of someone/acme-eagle3 does not exist"),
    ],
)
def test_disagreements(data, name, old, new, message):
    data.change(name, old, new)

    assert message in data.messages()
    assert "EA116" in {code for code, _ in data.findings()}


def test_a_folder_without_an_adapter(data):
    data.write("adapters/other/adaptor.yaml", ADAPTER)

    assert data.findings() == [("EA111", "adapters/other/adapter.yaml:1")]


def test_a_tiny_config_that_cannot_be_read(data):
    data.write("adapters/acme/tiny.json", "{")

    assert {code for code, _ in data.findings()} == {"EA111", "EA115"}


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("acmee", "did you mean acme?"),
        ("acmeforcausallm", "did you mean AcmeForCausalLM?"),
        ("zebra", "eagle-adapters list"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(data, name, suggestion):
    registry, _ = read(data.root)

    with pytest.raises(UsageError) as caught:
        registry.family_of(name)
    assert caught.value.code == "EA117"
    assert caught.value.diagnostics[0].next_step == suggestion


def test_the_exported_schema_refuses_what_the_reader_refuses():
    validator = Draft202012Validator(json_schema("registry"))
    good = {"version": 1, "families": {"acme": {"architectures": ["A"], "engines": {"vllm": {"status": "unproven"}}}}}
    assert validator.is_valid(good)
    for status in ({"status": "works"}, {"status": "verified", "versions": "==1"}, {"status": "unproven", "note": "x"}):
        good["families"]["acme"]["engines"]["vllm"] = status
        assert not validator.is_valid(good)
