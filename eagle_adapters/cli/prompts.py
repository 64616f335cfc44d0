"""What the commands share that decode prompts with a draft: their arguments, the prompt file, the result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

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
