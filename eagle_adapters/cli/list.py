"""`eagle-adapters list`: every family of the registry with its status in each engine."""

from __future__ import annotations

import typer

from eagle_adapters.cli.render import Format, FormatOption, Table, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("list")(list_families)


def list_families(output: FormatOption = Format.TABLE) -> None:
    """List the known model families and what was proven about each in each engine."""
    from eagle_adapters.contract import Engine
    from eagle_adapters.registry import engine_status, load

    families = [
        {
            "family": name,
            "architectures": [*family.architectures],
            "engines": {str(engine): engine_status(row) for engine, row in family.engines.items()},
        }
        for name, family in load().index.families.items()
    ]
    rows = [
        (row["family"], "\n".join(row["architectures"]), *(_cell(row["engines"].get(engine)) for engine in Engine))
        for row in families
    ]
    emit(families, output, Table(("family", "architectures", *Engine), rows))


def _cell(status: dict[str, str | None] | None) -> str:
    return "" if status is None else " ".join(filter(None, (status["status"], status["versions"])))
