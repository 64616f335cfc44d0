"""`eagle-adapters accept`: what a draft is worth on prompts, measured by decoding with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from eagle_adapters.cli.render import Format, FormatOption, Table, emit, progress
from eagle_adapters.cli.verify import parse_boundaries, quiet_transformers

if TYPE_CHECKING:
    from eagle_adapters.speculation.accept import Acceptance

TargetFolder = Annotated[Path, typer.Argument(help="The target's checkpoint folder.", exists=True, file_okay=False)]
DraftFolder = Annotated[Path, typer.Option("--draft", help="The draft's folder.", exists=True, file_okay=False)]
PromptFile = Annotated[
    Path,
    typer.Option(
        "--prompts",
        help="One prompt a line: text, or JSON with `input_ids` (token ids) or `prompt` (text).",
        exists=True,
        dir_okay=False,
    ),
]
Steps = Annotated[int, typer.Option("--steps", help="Tokens drafted in each round.", min=1, max=32)]
NewTokens = Annotated[int, typer.Option("--max-new-tokens", help="New tokens for each prompt.", min=1)]
Batch = Annotated[int, typer.Option("--batch", help="Prompts at a time.", min=1)]
Seed = Annotated[int, typer.Option("--seed", help="Of sampling and of the confidence intervals.")]
JsonFile = Annotated[Path | None, typer.Option("--out", help="Write the JSON to this file too.", dir_okay=False)]


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


def read_prompts(path: Path, target: Path) -> list[list[int]]:
    """The prompts of a file as token ids; the target's tokenizer is loaded only if a line is text.

    Raises:
        DataError: EA807, a line is neither text nor a known kind of JSON, there is no line, or there is no tokenizer.
    """
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    found = [_prompt(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    if not found:
        _refuse("the file holds no prompt", str(path), "one prompt a line")
    if all(isinstance(prompt, list) for prompt in found):
        return found  # type: ignore[return-value]
    tokenizer = _tokenizer(target)
    return [prompt if isinstance(prompt, list) else list(tokenizer(prompt)["input_ids"]) for prompt in found]


def write_json(data: dict[str, Any], path: Path | None) -> None:
    """Write a result to a file, if one is named."""
    if path is not None:
        path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")


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


def _prompt(line: str, where: str) -> str | list[int]:
    if not line.lstrip().startswith("{"):
        return line
    try:
        value = json.loads(line)
    except ValueError:
        return line
    ids = value.get("input_ids")
    if isinstance(ids, list) and ids and all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        return ids
    if isinstance(value.get("prompt"), str) and value["prompt"]:
        return str(value["prompt"])
    return _refuse("a prompt is of no known kind", where, "`input_ids` with token ids, or `prompt` with text")


def _tokenizer(target: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(target)
    except (OSError, ValueError) as error:
        _refuse("the prompts are text, but the target has no tokenizer", str(target), "a tokenizer", str(error))


def _refuse(message: str, where: str, expected: str, found: str | None = None) -> NoReturn:
    from eagle_adapters.diagnostics import Diagnostic
    from eagle_adapters.errors import DataError

    raise DataError(Diagnostic("EA807", message, expected=expected, found=found, where=where))
