"""`eagle-adapters check TARGET --draft DRAFT`: does a draft fit a target, and how are they served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from eagle_adapters.cli.render import Block, ExitCode, Format, FormatOption, Table, emit

if TYPE_CHECKING:
    from eagle_adapters.drafts.check import Verdict

_STYLE = {"ok": "green", "adapter": "yellow", "blocked": "red"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    target: Annotated[str, typer.Argument(help="The target: a folder, a config.json, or a hub name.")],
    draft: Annotated[str, typer.Option("--draft", help="The draft: a folder, a config.json alone, or a hub name.")],
    engine: Annotated[str | None, typer.Option("--engine", help="vllm or sglang; both when not given.")] = None,
    convention: Annotated[
        str | None, typer.Option("--convention", help="How the layer ids are meant: boundary, layer_output, ...")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> ExitCode:
    """Check a draft against its target: fit, boundaries, faults, and the command that serves them.

    No GPU and no weights of the target are needed. Exit code 1 when anything is worse than a note.
    """
    from eagle_adapters.drafts.check import check_draft

    verdict = check_draft(target, draft, engine, convention)
    emit(verdict.as_dict(), output, *_blocks(verdict))
    return ExitCode.FINE if verdict.clean else ExitCode.FINDINGS


def _blocks(verdict: Verdict) -> list[Block]:
    data = verdict.as_dict()
    rows = [
        ("verdict", data["verdict"]),
        ("boundaries", "undecided" if data["boundaries"] is None else data["boundaries"]),
        ("convention", data["convention"] or "undecided"),
        ("source", data["source"]),
    ]
    blocks: list[Block] = [Table(("", ""), rows, styles=[_STYLE[data["verdict"]]])]
    blocks.extend(verdict.findings)
    if verdict.command is not None:
        blocks.append(f"\n{verdict.command}")
    return blocks
