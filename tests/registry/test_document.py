"""The strict YAML reader: values with their lines, and an error for everything YAML would quietly change."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eagle_adapters.registry.document import Document, read_document


@pytest.fixture
def document(tmp_path):
    def read(text: str) -> Document:
        path = tmp_path / "file.yaml"
        path.write_text(text, "utf-8")
        return read_document(path)

    return read


def test_values_and_their_lines(document):
    read = document("a: 1\nb:\n  - x\n  - {c: true, d: null}\ne: '0.10'\n")

    assert not read.problems
    assert read.value == {"a": 1, "b": ("x", {"c": True, "d": None}), "e": "0.10"}
    assert read.where(("b", 1, "d")).endswith("file.yaml:4")
    assert read.where(("e",)).endswith("file.yaml:5")


def test_a_missing_place_is_named_by_its_nearest_parent(document):
    read = document("a:\n  b:\n    c: x\n")

    assert read.where(("a", "b", "nowhere", 3)).endswith("file.yaml:2")


def test_a_key_given_twice_names_both_lines(document):
    (problem,) = document("a:\n  vllm: x\n  other: y\n  vllm: z\n").problems

    assert problem.code == "EA112"
    assert problem.where.endswith("file.yaml:4")
    assert "line 2" in problem.found


@pytest.mark.parametrize(
    ("text", "reads_as"),
    [
        ("no", "a truth value"),
        ("Yes", "a truth value"),
        ("off", "a truth value"),
        ("0.10", "a number"),
        ("1e3", None),
        ("010", "a number"),
        ("1_000", "a number"),
        ("0x1f", "a number"),
        ("12:30", "a number"),
        ("2026-01-01", "a date"),
        (".inf", "a number"),
        ("~", None),
        ("1.2.3", None),
    ],
)
def test_what_yaml_would_change_is_an_error(document, text, reads_as):
    read = document(f"first: x\nversion: {text}\n")

    if reads_as is None:
        assert not read.problems
        assert read.value["version"] in (text, None)
    else:
        (problem,) = read.problems
        assert problem.code == "EA113"
        assert problem.where.endswith("file.yaml:2")
        assert problem.found == f"YAML reads {text} as {reads_as}"
        assert problem.next_step == f'write "{text}" in quotes'


@pytest.mark.parametrize(
    "text",
    ["a: &x {b: 1}\nc: *x\n", "a: &x {b: 1}\nc:\n  <<: *x\n", "1: x\n", "[a]: x\n", "a: !!python/name:os.system x\n"],
)
def test_aliases_tags_and_odd_keys_are_errors(document, text):
    assert {problem.code for problem in document(text).problems} == {"EA113"}


@pytest.mark.parametrize("text", ["", "a: [1\n", "a: b: c\n", "a: x\n---\nb: y\n", "a: \x00\n"])
def test_what_is_not_one_yaml_document_is_an_error(document, text):
    read = document(text)

    assert [problem.code for problem in read.problems] == ["EA111"]
    assert read.value is None


def test_a_file_that_is_not_there(tmp_path):
    (problem,) = read_document(tmp_path / "none.yaml").problems

    assert problem.code == "EA111"


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "file.yaml").write_bytes(b"\xff\xfe\x00a")

    assert [problem.code for problem in read_document(tmp_path / "file.yaml").problems] == ["EA111"]


VALUES = st.recursive(
    st.booleans() | st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def frozen(value):
    if isinstance(value, list):
        return tuple(map(frozen, value))
    if isinstance(value, dict):
        return {key: frozen(inner) for key, inner in value.items()}
    return value


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory, value):
    path: Path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(yaml.safe_dump(value, allow_unicode=False), "utf-8")

    read = read_document(path)

    assert not read.problems
    assert read.value == frozen(value)
