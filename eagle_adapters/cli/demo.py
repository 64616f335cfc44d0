"""`eagle-adapters demo`: the whole way on one real model class, from missing hooks to proven states."""

from __future__ import annotations

from typing import Annotated

import typer

from eagle_adapters.cli.render import Block, ExitCode, Format, FormatOption, emit
from eagle_adapters.cli.verify import Image, load_image, parse_boundaries, quiet_transformers, report


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demonstrate)


def demonstrate(
    family: Annotated[str, typer.Argument(help="A family or architecture of the registry.")] = "kimi_k25",
    boundaries: Annotated[str | None, typer.Option(help="Boundaries such as 2,4,5; default: (2, N//2, N-3).")] = None,
    image: Image = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what a model class lacks for EAGLE-3, wrap it, capture while it generates, and prove the states.

    The class is the real one of transformers, with few layers and random weights; the prompts are text and a picture.
    """
    from eagle_adapters.boundaries import default_boundaries
    from eagle_adapters.contract import check
    from eagle_adapters.registry import load
    from eagle_adapters.tiny import build_tiny
    from eagle_adapters.verify import runner_for, verify
    from eagle_adapters.wrapping import explain, unwrap, wrap

    quiet_transformers()
    family = load().family_of(family)
    model = build_tiny(family)
    lacking = check(model, "transformers")
    explanation = explain(wrap(model))
    unwrap(model)
    plan = explanation.plan.as_dict()
    depth = model.config.get_text_config(decoder=True).num_hidden_layers
    asked = list(default_boundaries(depth)) if boundaries is None else parse_boundaries(boundaries)
    result = verify(family, runner_for("transformers"), boundaries=asked, image=load_image(image))
    data = {
        "target": result.architecture,
        "boundaries": list(result.boundaries),
        "max_abs_error": result.max_abs_error,
        "nearest_wrong_error": result.nearest_wrong_error,
        "verdict": "pass" if result.passed else "fail",
        "lacking": lacking.as_list(),
        "edits": plan["edits"],
    }
    blocks: list[Block] = [
        f"1. {type(model).__name__} as transformers has it lacks:",
        *lacking,
        "2. wrapped:",
        str(explanation),
        f"3. boundaries {list(result.boundaries)} captured while it generated, against the cut-down reference:",
        *report(result),
    ]
    emit(data, output, *blocks)
    if not result.passed:
        raise typer.Exit(ExitCode.FINDINGS)
