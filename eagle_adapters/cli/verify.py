"""`eagle-adapters verify`: capture a target's states in an engine and compare every boundary with the reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eagle_adapters.cli.render import Block, ExitCode, Format, FormatOption, Table, emit
from eagle_adapters.contract import Engine

if TYPE_CHECKING:
    from eagle_adapters.verify import Evidence

Image = Annotated[
    Path | None, typer.Option("--image", exists=True, dir_okay=False, help="A picture to use instead of the drawn one.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify_target)


def verify_target(
    target: Annotated[str, typer.Argument(help="A family or architecture of the registry, or a checkpoint folder.")],
    engine: Annotated[Engine, typer.Option("--engine", help="Where to capture.")] = Engine.TRANSFORMERS,
    boundaries: Annotated[str | None, typer.Option(help="Boundaries such as 2,4,5; default: all of 0..N.")] = None,
    image: Image = None,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", dir_okay=False, help="Write the result to this file.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Prove the captured states of a target against an independent reference, boundary by boundary.

    A family is built small, with random weights, from its tiny.json; a folder is loaded as it is.
    """
    from eagle_adapters.verify import runner_for, verify, write_evidence

    quiet_transformers()
    result = verify(
        family_or_folder(target),
        runner_for(engine),
        boundaries=None if boundaries is None else parse_boundaries(boundaries),
        image=load_image(image),
    )
    if evidence is not None:
        write_evidence(result, evidence)
    emit(result.as_dict(), output, *report(result))
    if not result.passed:
        raise typer.Exit(ExitCode.FINDINGS)


def report(result: Evidence) -> list[Block]:
    """The result as people read it."""
    columns = ("prompt", "boundary", "positions", "max error", "relative", "cosine", "to b-1", "to b+1", "nearest", "")
    rows = [
        (
            r.prompt,
            m.boundary,
            f"{m.positions} {m.place}",
            f"{m.max_abs_error:.1e}",
            f"{m.relative_error:.1e}",
            f"{m.cosine:.6f}",
            "" if m.below is None else f"{m.below:.2f}",
            "" if m.above is None else f"{m.above:.2f}",
            m.nearest,
            "ok" if m.passed else "WRONG",
        )
        for r in result.results
        for m in r.matches
    ]
    styles = [None if m.passed else "red" for r in result.results for m in r.matches]
    logits = ", ".join(f"{r.logits_error:.1e} ({r.prompt})" for r in result.results if r.logits_error is not None)
    title = f"{result.architecture} in {result.engine} {result.engine_version}, {result.num_layers} layers"
    blocks: list[Block] = [Table(columns, rows, title, styles), *result.findings]
    if logits:
        blocks.append(f"logits rebuilt from boundary {result.num_layers}: largest error {logits}")
    return [*blocks, f"verdict: {'pass' if result.passed else 'fail'}"]


def family_or_folder(target: str) -> str | Path:
    """A checkpoint folder as a path, or the registry's family of a name.

    Raises:
        DataError: the name is not in the registry.
    """
    from eagle_adapters.registry import load

    path = Path(target)
    if path.is_dir():
        return path
    return load().family_of(target)


def parse_boundaries(text: str) -> list[int]:
    """The numbers of a list such as `2,4,5`.

    Raises:
        UsageError: EA901, it is no such list.
    """
    from eagle_adapters.diagnostics import Diagnostic
    from eagle_adapters.errors import UsageError

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        found = Diagnostic("EA901", "the boundaries are no list of numbers", expected="such as 2,4,5", found=text)
        raise UsageError(found) from None


def load_image(path: Path | None) -> object:
    """The picture in a file, or None for the drawn one."""
    from eagle_adapters.tiny import picture

    return None if path is None else picture(path)


def quiet_transformers() -> None:
    """Keep the progress bars of transformers off the terminal: the command prints its own result."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
