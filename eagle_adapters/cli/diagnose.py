"""`eagle-adapters diagnose`: why a served acceptance is what it is, and whether drafting pays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle_adapters.cli.render import Block, ExitCode, Format, FormatOption, Table, emit

if TYPE_CHECKING:
    from eagle_adapters.speculation.accept import Interval


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("diagnose")(diagnose)


def diagnose(
    offline: Annotated[Path, typer.Option("--offline", help="The JSON that `eagle-adapters accept` wrote.")],
    served: Annotated[Path, typer.Option("--served", help="Metrics of the engine after the run.")],
    before: Annotated[Path | None, typer.Option("--before", help="The same before it, to be subtracted.")] = None,
    images: Annotated[Path | None, typer.Option("--images", help="Metrics of a run with images.")] = None,
    long: Annotated[Path | None, typer.Option("--long", help="Metrics of a run with long prompts.")] = None,
    template: Annotated[
        Path | None, typer.Option("--template", help="Metrics of a run with the chat template applied.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="The JSON that `eagle-adapters calibrate` wrote.")
    ] = None,
    draft_cost: Annotated[
        float, typer.Option("--draft-cost", help="Cost of one draft step, in plain passes of the target.")
    ] = 0.05,
    verify_cost: Annotated[
        float, typer.Option("--verify-cost", help="Cost of one verifying pass, in plain passes of the target.")
    ] = 1.1,
    output: FormatOption = Format.TABLE,
) -> ExitCode:
    """Name the likely cause of a served acceptance: interface, weights, positions, template, weak draft, or sound.

    Exit code 1 unless it is sound.
    """
    from eagle_adapters.speculation.cost import break_even_acceptance, predict, round_cost, speed_up
    from eagle_adapters.speculation.diagnosis import Cause
    from eagle_adapters.speculation.diagnosis import diagnose as find_cause
    from eagle_adapters.speculation.measured import read_acceptance, read_calibration
    from eagle_adapters.speculation.served import read_served

    measured = read_acceptance(offline)
    counted = read_served(_text(served), None if before is None else _text(before), where=str(served))
    runs = {"images": images, "long": long, "template": template}
    found = find_cause(
        measured,
        counted,
        variants={name: read_served(_text(path), where=str(path)) for name, path in runs.items() if path is not None},
        readings=() if calibration is None else read_calibration(calibration),
    )
    steps = counted.steps or measured.steps
    cost: dict[str, Any] = {
        "draft_cost": draft_cost,
        "verify_cost": verify_cost,
        "steps": steps,
        "speed_up": speed_up(counted.length, draft_cost, verify_cost, steps),
        "break_even_length": round_cost(draft_cost, verify_cost, steps),
        "break_even_acceptance": break_even_acceptance(draft_cost, verify_cost, steps),
        "by_steps": [
            {"steps": p.steps, "acceptance_length": p.length, "speed_up": p.speed_up}
            for p in predict(counted.rates or measured.rates, draft_cost, verify_cost)
        ],
    }
    data = found.as_dict() | {
        "rates": {"offline": list(measured.rates), "served": counted.as_dict()["rates"]},
        "cost": cost,
    }
    emit(data, output, *_blocks(data, found.served, found.offline))
    return ExitCode.FINE if found.cause is Cause.SOUND else ExitCode.FINDINGS


def _text(path: Path) -> str:
    from eagle_adapters.drafts.documents import read_bytes

    return read_bytes(path, _LIMIT).decode("utf-8", "replace")


_LIMIT = 64 * 2**20
"""Bytes that a metrics file may have."""


def _blocks(data: dict[str, Any], served: Interval, offline: Interval) -> list[Block]:
    cost = data["cost"]
    even = cost["break_even_acceptance"]
    blocks: list[Block] = [
        f"likely cause: {data['cause']}",
        Table(
            ("cause", "evidence", "seen before", "next step"),
            [(s["cause"], s["evidence"], s["seen"], s["next_step"]) for s in data["suspicions"]],
        ),
        Table(
            ("", "acceptance length", "rates by position"),
            [
                ("offline", offline, _rates(data["rates"]["offline"])),
                ("served", served, _rates(data["rates"]["served"])),
            ],
        ),
        Table(
            ("steps", "acceptance length", "speed-up"),
            [(p["steps"], f"{p['acceptance_length']:.2f}", f"{p['speed_up']:.2f}x") for p in cost["by_steps"]],
            title=f"predicted for draft cost {cost['draft_cost']:g}, verify cost {cost['verify_cost']:g}",
        ),
        f"at {cost['steps']} steps: {cost['speed_up']:.2f}x; break-even at length {cost['break_even_length']:.2f}, "
        + ("which no acceptance reaches" if even is None else f"an acceptance of {even:.1%} a token"),
    ]
    return blocks


def _rates(rates: list[float] | None) -> str:
    return "not given" if rates is None else ", ".join(f"{rate:.3f}" for rate in rates)
