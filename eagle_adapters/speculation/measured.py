"""What `accept` and `calibrate` measured, read back from the JSON they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.drafts.documents import CONFIG_LIMIT, parse_json, read_bytes
from eagle_adapters.errors import DataError
from eagle_adapters.speculation.accept import Acceptance, Interval

Rate = Annotated[float, Field(ge=0, le=1)]
Length = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0)]

AnyModel = TypeVar("AnyModel", bound=BaseModel)


class _Read(BaseModel):
    # Fields that this reader does not need (prompts, settings, plots) may stand beside these.
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Interval(_Read):
    mean: Length
    low: Length
    high: Length


class _Accepted(_Read):
    steps: Count
    prompts: Count
    rounds: Count
    acceptance_length: _Interval
    rates: Annotated[tuple[Rate, ...], Field(min_length=1, strict=False)]
    new_tokens: Count
    target_passes: Count


class _Ranked(_Read):
    boundaries: Annotated[tuple[int, ...], Field(strict=False)]
    acceptance_length: _Interval


class _Calibrated(_Read):
    ranking: Annotated[tuple[_Ranked, ...], Field(min_length=1, strict=False)]


def read_acceptance(path: Path) -> Acceptance:
    """The offline measurement that `eagle-adapters accept` wrote.

    Raises:
        DataError: EA700, the file cannot be read; EA840, it is no such measurement.
    """
    found = _validate(_Accepted, path)
    return Acceptance(
        steps=found.steps,
        prompts=found.prompts,
        rounds=found.rounds,
        length=_interval(found.acceptance_length),
        rates=found.rates,
        new_tokens=found.new_tokens,
        target_passes=found.target_passes,
    )


def read_calibration(path: Path) -> tuple[tuple[str, Interval], ...]:
    """The readings that `eagle-adapters calibrate` ranked, best first: their boundaries and acceptance lengths.

    Raises:
        DataError: EA700, EA840 as `read_acceptance`.
    """
    found = _validate(_Calibrated, path)
    return tuple((str(list(row.boundaries)), _interval(row.acceptance_length)) for row in found.ranking)


def _validate(model: type[AnyModel], path: Path) -> AnyModel:
    try:
        return model.model_validate(parse_json(read_bytes(path, CONFIG_LIMIT), path))
    except ValidationError as error:
        raise DataError(
            Diagnostic(
                "EA840",
                f"{path.name} has no usable {'.'.join(map(str, fault['loc'])) or 'content'}",
                expected=fault["msg"],
                found=repr(fault["input"])[:80],
                where=str(path),
                next_step="write it again with --format json or --output",
            )
            for fault in error.errors()
        ) from None


def _interval(found: _Interval) -> Interval:
    return Interval(found.mean, found.low, found.high)
