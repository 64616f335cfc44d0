"""All that the command line prints: tables, texts, diagnostics, JSON. Only this module knows rich."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle_adapters.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""

_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


class Format(StrEnum):
    """How a command prints its result."""

    TABLE = "table"
    JSON = "json"


class ExitCode(IntEnum):
    """How a command ended."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    INTERNAL = 3
    INTERRUPTED = 130


FormatOption = Annotated[Format, typer.Option("--format", help="A table for people, or JSON for programs.")]
"""The `--format` option of every command: `output: FormatOption = Format.TABLE`."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: cells are printed with `str`, None as an empty cell. A row may carry a style (`green`, `red`, ...)."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str | None = None
    styles: Sequence[str | None] = ()


Block = Table | Diagnostic | str
"""What can be printed in table format; a string is printed as it is, without markup."""


def emit(data: Any, output: Format, *blocks: Block) -> None:
    """Print a result on stdout: `data` as JSON, or the `blocks` one below the other."""
    if output is Format.JSON:
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
        return
    console = _console(stderr=False)
    for block in blocks:
        _print(console, block)


def fail(diagnostics: Iterable[Diagnostic], output: Format) -> None:
    """Print why a command failed: as text on stderr, or as `{"error": [...]}` on stdout."""
    if output is Format.JSON:
        emit({"error": [diagnostic.as_dict() for diagnostic in diagnostics]}, output)
        return
    console = _console(stderr=True)
    for diagnostic in diagnostics:
        _print(console, diagnostic)


@contextmanager
def progress(what: str, output: Format) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr while something takes long; call what it gives with done and total. Silent for JSON and pipes."""
    from rich.progress import Progress

    console = _console(stderr=True)
    with Progress(console=console, transient=True, disable=output is Format.JSON or not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def _print(console: Console, block: Block) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    if isinstance(block, str):
        console.print(block)
    elif isinstance(block, Diagnostic):
        head, *rest = str(block).splitlines()
        console.print(Text(head, style=_STYLE[block.severity]))
        for line in rest:
            console.print(line)
    else:
        table = RichTable(title=block.title, title_justify="left", header_style="bold")
        for column in block.columns:
            table.add_column(column, overflow="fold")
        styles = list(block.styles) + [None] * (len(block.rows) - len(block.styles))
        for row, style in zip(block.rows, styles, strict=True):
            table.add_row(*(Text("" if cell is None else str(cell)) for cell in row), style=style)
        console.print(table)
