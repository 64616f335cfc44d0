"""`eagle-adapters list`: every family of the registry with its status in each engine."""

from __future__ import annotations

from typing import Any

import typer

from eagle_adapters.cli.render import Format, FormatOption, Table, emit
from eagle_adapters.contract import Engine


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list")(list_families)


def list_families(output: FormatOption = Format.TABLE) -> None:
    """List the known model families and what was proven about each in each engine."""
    from eagle_adapters.registry import engine_status, load

    families = [
        {
            "family": name,
            "architectures": [*family.architectures],
            "engines": {str(engine): engine_status(row) for engine, row in family.engines.items()},
        }
        for name, family in load().index.families.items()
    ]
    emit(families, output, Table(("family", "architectures", *Engine), [_row(family) for family in families]))


def _row(family: dict[str, Any]) -> tuple[str, ...]:
    return family["family"], "\n".join(family["architectures"]), *(_cell(family["engines"].get(e)) for e in Engine)


def _cell(status: dict[str, str | None] | None) -> str:
    return "" if status is None else " ".join(filter(None, (status["status"], status["versions"])))
