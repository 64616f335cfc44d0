"""`eagle-adapters accept`: what a draft is worth on prompts, measured by decoding with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from eagle_adapters.cli.render import Format, FormatOption, Table, emit, progress
from eagle_adapters.cli.verify import parse_boundaries, quiet_transformers

if TYPE_CHECKING:
    from eagle_adapters.speculation.accept import Acceptance


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("accept")(accept)


def accept(
    target: TargetFolder,
    draft: DraftFolder,
    prompts: PromptFile,
    steps: Steps = 3,
    max_new_tokens: NewTokens = 64,
    temperature: Annotated[float, typer.Option("--temperature", help="0 decodes greedily.", min=0.0)] = 0.0,
    boundaries: Annotated[
        str | None, typer.Option(help="Boundaries such as 2,4,5; default: as the draft's ids are read.")
    ] = None,
    batch: Batch = 16,
    seed: Seed = 0,
    out: JsonFile = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the rates into this picture.", dir_okay=False)
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Decode prompts with a draft on this machine and print its acceptance.

    The target runs in float32 as a transformers model. Greedy decoding gives the very tokens of the target.
    """
    from eagle_adapters.speculation.accept import measure
    from eagle_adapters.verify.transformers import load_model

    rows = read_prompts(prompts, target)
    quiet_transformers()
    with progress("prompts", output) as tell:
        result = measure(
            load_model(target),
            draft,
            rows,
            steps=steps,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            boundaries=None if boundaries is None else parse_boundaries(boundaries),
            batch=batch,
            seed=seed,
            on_batch=tell,
        )
    data = {"target": str(target), "draft": str(draft), **result.as_dict()}
    write_json(data, out)
    if plot is not None:
        draw(result, plot)
    table = Table(
        ("what", "value"),
        (
            ("acceptance length", str(result.length)),
            *((f"position {k + 1} accepted", f"{rate:.3f}") for k, rate in enumerate(result.rates)),
            ("tokens for each target pass", f"{result.tokens_per_pass:.3f}"),
            ("rounds", f"{result.rounds} over {result.prompts} prompts"),
        ),
        f"{draft} for {target}, {steps} steps",
    )
    emit(data, output, table)


def draw(result: Acceptance, path: Path) -> None:
    """Draw the acceptance rate of each position.

    Raises:
        UsageError: EA901, matplotlib is not installed.
    """
    from eagle_adapters.diagnostics import Diagnostic
    from eagle_adapters.errors import UsageError

    try:
        from matplotlib.figure import Figure
    except ImportError:
        hint = "pip install 'eagle-adapters[plots]'"
        raise UsageError(Diagnostic("EA901", "a plot needs matplotlib", next_step=hint)) from None
    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    positions = range(1, result.steps + 1)
    bars = axes.bar(positions, result.rates, color="#3b6ea5")
    axes.bar_label(bars, fmt="%.2f", padding=2)
    axes.set(xticks=positions, ylim=(0, 1.1), xlabel="drafted position", ylabel="accepted")
    axes.set_title(f"acceptance length {result.length.mean:.2f} with {result.steps} steps")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
