"""`eagle-adapters demo`: the whole way on one real model class, from missing hooks to proven states."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eagle_adapters.cli.render import Block, ExitCode, Format, FormatOption, emit, progress
from eagle_adapters.cli.verify import Image, load_image, parse_boundaries, quiet_transformers, report


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demonstrate)


def demonstrate(
    family: Annotated[str, typer.Argument(help="A family or architecture of the registry.")] = "kimi_k25",
    boundaries: Annotated[str | None, typer.Option(help="Boundaries such as 2,4,5; default: (2, N//2, N-3).")] = None,
    image: Image = None,
    decode: Annotated[
        bool, typer.Option("--decode", help="Also decode with a trained draft; trains it first, minutes, once.")
    ] = False,
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
    if output is Format.TABLE:
        emit(data, output, *blocks)
    lossless = True
    if decode:
        decoding = decode_with_trained_pair(output)
        lossless = decoding["identical"]
        data["decoding"] = decoding
        if output is Format.TABLE:
            emit(data, output, describe(decoding))
    if output is Format.JSON:
        emit(data, output)
    if not (result.passed and lossless):
        raise typer.Exit(ExitCode.FINDINGS)


def describe(decoding: dict[str, Any]) -> str:
    """The decoding as people read it."""
    passes, plain = decoding["target_passes"], decoding["plain_passes"]
    same = "the very same tokens" if decoding["identical"] else "but OTHER TOKENS than without the draft"
    return (
        "4. a small Kimi-K2.5 and a draft for it, both trained here, on held-out text: "
        f"{decoding['tokens']} tokens in {passes} passes of the target instead of {plain} "
        f"({plain / passes:.2f}x fewer), {same}"
    )


def decode_with_trained_pair(output: Format, prompts: int = 8, new_tokens: int = 64) -> dict[str, Any]:
    """Held-out prompts decoded with and without the trained draft: passes of the target, and whether tokens agree."""
    import torch

    from eagle_adapters import speculate
    from eagle_adapters.testing import pair

    with progress("training a small target and its draft, once", output) as step:
        trained = pair.load_pair(progress=lambda stage, done, of, loss: step(done, of))
    model = trained.load_target()
    ids = torch.tensor(pair.prompts(prompts))
    plain = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )[:, ids.shape[1] :]
    drafted = speculate(model, trained.draft, ids, max_new_tokens=new_tokens)
    return {
        "tokens": plain.numel(),
        "plain_passes": plain.numel(),
        "target_passes": sum(drafted.target_passes),
        "identical": [list(row) for row in drafted.tokens] == plain.tolist(),
    }
