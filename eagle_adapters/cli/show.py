"""`eagle-adapters show NAME`: all that the registry and the adapter say about one family."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eagle_adapters.cli.render import Block, Format, FormatOption, Table, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("show")(show)


def show(
    name: Annotated[str, typer.Argument(help="A family or an architecture.")],
    output: FormatOption = Format.TABLE,
) -> None:
    """Show one family: chains, status and evidence in each engine, quirks, known drafts."""
    from eagle_adapters.registry import engine_status, load

    registry = load()
    family = registry.family_of(name)
    row, adapter = registry.index.families[family], registry.adapters[family]
    engines: dict[str, dict[str, Any]] = {}
    for engine, status in row.engines.items():
        facts = adapter.engines.get(engine)
        engines[str(engine)] = {**engine_status(status), **(facts.model_dump(mode="json") if facts else {})}
    drafts = {
        draft: known.model_dump(mode="json", exclude={"family"})
        for draft, known in registry.index.drafts.items()
        if known.family == family
    }
    data = {
        "family": family,
        "title": adapter.title,
        "architectures": [*row.architectures],
        "sources": [*adapter.sources],
        "engines": engines,
        "quirks": [quirk.model_dump(mode="json") for quirk in adapter.quirks],
        "drafts": drafts,
    }
    emit(data, output, *_blocks(data))


def _blocks(data: dict[str, Any]) -> list[Block]:
    engines = [
        (
            engine,
            " ".join(filter(None, (facts["status"], facts["versions"]))),
            facts.get("reason") or facts["evidence"],
            facts.get("architecture"),
            ".".join(["target", *facts.get("chain", [])]),
            facts.get("stream"),
        )
        for engine, facts in data["engines"].items()
    ]
    blocks: list[Block] = [
        f"{data['family']}: {data['title']}",
        Table(("engine", "status", "evidence", "architecture", "chain to the decoder", "stream"), engines),
    ]
    if data["quirks"]:
        rows = [
            (quirk["engine"] + quirk["versions"], quirk["what"], quirk["why"], quirk["remove_when"])
            for quirk in data["quirks"]
        ]
        blocks.append(Table(("quirk", "what", "why", "remove when"), rows))
    if data["drafts"]:
        drafts = [(name, f"{d['ids']} of {d['num_layers']}", d["convention"]) for name, d in data["drafts"].items()]
        blocks.append(Table(("draft", "ids", "convention"), drafts))
    return blocks
