"""`eagle-adapters calibrate`: what a draft's layer ids mean, found by measuring every reading of them."""

from __future__ import annotations

from typing import Annotated

import typer

from eagle_adapters.cli.prompts import (
    Batch,
    DraftFolder,
    JsonFile,
    NewTokens,
    PromptFile,
    Seed,
    Steps,
    TargetFolder,
    read_prompts,
    write_json,
)
from eagle_adapters.cli.render import ExitCode, Format, FormatOption, Table, emit, progress
from eagle_adapters.cli.verify import quiet_transformers


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate")(calibrate_draft)


def calibrate_draft(
    target: TargetFolder,
    draft: DraftFolder,
    prompts: PromptFile,
    steps: Steps = 3,
    max_new_tokens: NewTokens = 64,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Of the target's text; 0 counts greedy tokens.", min=0.0)
    ] = 1.0,
    batch: Batch = 16,
    seed: Seed = 0,
    out: JsonFile = None,
    output: FormatOption = Format.TABLE,
) -> int:
    """Rank every reading of a draft's layer ids by the acceptance it gives, and say which one is right.

    The exit code is 1 when the data cannot tell.
    """
    from eagle_adapters.speculation.calibrate import calibrate
    from eagle_adapters.verify.transformers import load_model

    rows = read_prompts(prompts, target)
    quiet_transformers()
    with progress("prompts", output) as tell:
        result = calibrate(
            load_model(target),
            draft,
            rows,
            steps=steps,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            batch=batch,
            seed=seed,
            on_batch=tell,
        )
    data = {"target": str(target), "draft": str(draft), **result.as_dict()}
    write_json(data, out)
    table = Table(
        ("boundaries", "readings", "acceptance length", "behind the best"),
        [
            (
                ", ".join(str(b) for b in ranked.candidate.boundaries),
                "\n".join(ranked.candidate.names),
                str(ranked.length),
                "" if ranked.behind is None else str(ranked.behind),
            )
            for ranked in result.ranking
        ],
        f"{draft} for {target}: {result.places} places in {result.prompts} prompts, {steps} steps",
        ["green" if result.decided else None, *(None if r.excluded else "yellow" for r in result.ranking[1:])],
    )
    emit(data, output, table, f"verdict: {result.verdict}")
    return ExitCode.FINE if result.decided else ExitCode.FINDINGS
