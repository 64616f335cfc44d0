"""`eagle-adapters registry validate|schema`: check the data files, or export their JSON schemas for editors."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from eagle_adapters.cli.render import ExitCode, Format, FormatOption, Table, emit


class SchemaOf(StrEnum):
    """The two kinds of data file."""

    REGISTRY = "registry"
    ADAPTER = "adapter"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="Check the data files, or export their JSON schemas.", rich_markup_mode=None)
    group.command("validate")(validate)
    group.command("schema")(schema)
    app.add_typer(group, name="registry")


def validate(
    path: Annotated[
        Path | None, typer.Argument(help="A folder with registry.yaml and adapters/, or its registry.yaml.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Check registry.yaml, every adapter and every evidence file; name all that is wrong, with file and line."""
    from eagle_adapters.registry import read
    from eagle_adapters.resources import data_root

    root = data_root() if path is None else path.parent if path.name == "registry.yaml" else path
    registry, report = read(root)
    families = 0 if registry is None else len(registry.adapters)
    summary = f"{len(report)} findings" if registry is None else f"{families} families, all valid"
    data = {"root": str(root), "valid": registry is not None, "families": families, "findings": report.as_list()}
    emit(data, output, *report, summary)
    return ExitCode.FINE if registry is not None else ExitCode.FINDINGS


def schema(
    kind: Annotated[SchemaOf, typer.Argument(help="Which file the schema is for.")] = SchemaOf.REGISTRY,
    output: FormatOption = Format.JSON,
) -> None:
    """Print the JSON schema of registry.yaml or adapter.yaml; as a table, only its definitions and their fields."""
    from eagle_adapters.registry import json_schema

    found = json_schema(kind.value)
    definitions = {**found["$defs"], found["title"]: found}
    rows = [
        (name, field, "required" if field in definition.get("required", ()) else "")
        for name, definition in definitions.items()
        for field in definition.get("properties", ())
    ]
    emit(found, output, Table(("of", "field", ""), rows))
