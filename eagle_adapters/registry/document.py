"""Reads a YAML file strictly: every value with its line, and nothing that YAML quietly turns into something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eagle_adapters.diagnostics import Diagnostic

Place = tuple[str | int, ...]
"""Where a value stands in a document: keys and list positions from the top."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_NULLS = ("", "null", "~")


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file as plain values, with the line of each.

    Attributes:
        path: the file.
        value: mappings as dicts, sequences as tuples, scalars as str, int, bool or None.
        lines: where each value stands, counted from 1.
        problems: what was wrong with the text; the value leaves those parts out.
    """

    path: Path
    value: Any
    lines: Mapping[Place, int]
    problems: tuple[Diagnostic, ...]

    def where(self, at: Place) -> str:
        """`file:line` of the value at a path, or of its nearest parent that is there."""
        while at and at not in self.lines:
            at = at[:-1]
        return f"{self.path}:{self.lines.get(at, 1)}"


def read_document(path: Path) -> Document:
    """The YAML file at `path`; problems are collected, not raised.

    Problems: EA111 unreadable or no YAML, EA112 a key given twice, EA113 a value that YAML reads as something else.
    """
    try:
        node = yaml.compose(path.read_text("utf-8"), Loader=_LOADER)
    except (OSError, UnicodeDecodeError) as error:
        return _broken(path, 1, str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return _broken(path, mark.line + 1 if mark else 1, " ".join(filter(None, (error.context, error.problem))))
    except yaml.YAMLError as error:
        return _broken(path, 1, str(error))
    if node is None:
        return _broken(path, 1, "the file is empty")
    reading = _Reading(path)
    value = reading.read(node, ())
    return Document(path, value, reading.lines, tuple(reading.problems))


def _broken(path: Path, line: int, why: str) -> Document:
    problem = Diagnostic("EA111", f"{path.name} cannot be read as YAML", found=why, where=f"{path}:{line}")
    return Document(path, None, {(): line}, (problem,))


class _Reading:
    """One walk over the nodes of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Place, int] = {}
        self.problems: list[Diagnostic] = []
        self._seen: set[int] = set()

    def read(self, node: yaml.Node, at: Place) -> Any:
        self.lines[at] = node.start_mark.line + 1
        if id(node) in self._seen:
            self._problem("EA113", node, "an alias", expected="the value written out", found="*alias")
            return None
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.read(item, (*at, position)) for position, item in enumerate(node.value))
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, at: Place) -> dict[str, Any]:
        out: dict[str, Any] = {}
        first: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self._problem("EA113", key_node, "a key", expected="a string", found=str(key_node.value))
                continue
            if key in first:
                earlier = first[key].start_mark.line + 1
                self._problem("EA112", key_node, f"the key {key!r}", found=f"first given in line {earlier}")
                continue
            first[key] = key_node
            out[key] = self.read(value_node, (*at, key))
            self.lines[(*at, key)] = key_node.start_mark.line + 1
        return out

    def _scalar(self, node: yaml.Node) -> str | int | bool | None:
        kind, text = node.tag.removeprefix(_TAG), node.value
        if kind == "str":
            return str(text)
        if kind == "int" and text.removeprefix("-").isdecimal() and (text == "0" or not text.startswith("0")):
            return int(text)
        if kind == "bool" and text in ("true", "false"):
            return bool(text == "true")
        if kind == "null" and text in _NULLS:
            return None
        meant = {"bool": "true, false, or a quoted string", "null": "null, or a quoted string"}
        self._problem(
            "EA113",
            node,
            f"the value {text}",
            expected=meant.get(kind, "a quoted string"),
            found=f"YAML reads {text} as {_KINDS.get(kind, kind)}",
        )
        return None

    def _problem(self, code: str, node: yaml.Node, what: str, *, found: str, expected: str | None = None) -> None:
        line = node.start_mark.line + 1
        message = f"{what} is given twice" if code == "EA112" else f"{what} is not what it looks like"
        next_step = f'write "{node.value}" in quotes' if isinstance(node, yaml.ScalarNode) and code == "EA113" else None
        where = f"{self.path}:{line}"
        self.problems.append(
            Diagnostic(code, message, expected=expected, found=found, where=where, next_step=next_step)
        )


_KINDS = {"float": "a number", "timestamp": "a date", "bool": "a truth value", "int": "a number", "null": "nothing"}
