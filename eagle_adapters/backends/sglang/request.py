"""What this process was asked to capture: the layer ids of the draft, where they stand, and how they are meant."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle_adapters.boundaries import Convention, Reading, read_ids
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import BoundaryError, DataError, UsageError

CONVENTION_ENV = "EAGLE_ADAPTERS_CONVENTION"
"""Declares how a draft's layer ids are meant, `boundary` or `layer_output`; stronger than everything else."""

IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True)
class Request:
    """The layer ids of one draft.

    Attributes:
        ids: as written, or None when the draft carries none.
        where: the field they stand in.
        draft: the draft's path or hub name, or None when it is not known.
    """

    ids: tuple[int, ...] | None
    where: str
    draft: str | None = None


_remembered: list[Request] = []


def remember(request: Request | None) -> None:
    """Remember what the draft of this process asks for; None forgets it."""
    _remembered[:] = [] if request is None else [request]


def request_for(layer_ids: Sequence[int] | None) -> Request:
    """The remembered request, or one for bare ids; the ids that the engine passes must be the draft's.

    Raises:
        BoundaryError: EA541, they are not.
    """
    given = None if layer_ids is None else tuple(int(i) for i in layer_ids)
    if not _remembered:
        return Request(given, "set_eagle3_layers_to_capture")
    current = _remembered[0]
    if given is not None and given != current.ids:
        raise BoundaryError(
            Diagnostic(
                "EA541",
                "the engine asks for other layer ids than the draft states",
                expected=f"{current.ids} ({current.where})",
                found=str(given),
                next_step="restart the server with one draft",
            )
        )
    return current


def read_request(config: Mapping[str, Any], draft: str | None) -> Request:
    """The request that a draft's config states, at the top level or in `eagle_config`.

    Raises:
        BoundaryError: EA541, both places state ids and they differ; EA001, they are no list of integers.
    """
    nested = config.get("eagle_config")
    places = {
        f"eagle_config.{IDS}": nested.get(IDS) if isinstance(nested, Mapping) else getattr(nested, IDS, None),
        IDS: config.get(IDS),
    }
    found = {where: _integers(value, where) for where, value in places.items() if value is not None}
    if len(set(found.values())) > 1:
        raise BoundaryError(
            Diagnostic(
                "EA541",
                "the draft states its layer ids twice, and differently",
                found="; ".join(f"{where} = {list(ids)}" for where, ids in found.items()),
                where=draft,
                next_step="keep one of the two fields in the draft's config.json",
            )
        )
    for where, ids in found.items():
        return Request(ids, where, draft)
    return Request(None, "no ids in the draft's config", draft)


def read_boundaries(request: Request, num_layers: int) -> Reading:
    """How the ids of a request are read for a target of `num_layers` layers; the boundaries are in ascending order.

    Raises:
        BoundaryError: EA001, EA002, EA004, EA005 as `Reading.require`; EA544 the ids are not ascending.
        UsageError: EA901, the environment variable holds no convention.
    """
    reading = read_ids(request.ids, num_layers, declared=_declared(), registered=_registered(request.draft))
    if not reading.decided:
        try:
            reading.require()
        except BoundaryError as error:
            cause = error.diagnostics[0]
            raise BoundaryError(
                Diagnostic(
                    cause.code,
                    cause.message,
                    expected=f"a declared convention: {CONVENTION_ENV}=boundary or {CONVENTION_ENV}=layer_output",
                    found=cause.found,
                    where=request.where,
                    consequence="read wrongly, the draft gets states one layer off and is hardly ever accepted",
                    next_step=f"set {CONVENTION_ENV}, or measure it with eagle-adapters calibrate",
                )
            ) from None
    boundaries = reading.require()
    if list(boundaries) != sorted(boundaries):
        raise BoundaryError(
            Diagnostic(
                "EA544",
                f"the layer ids {list(request.ids or ())} are not in ascending order",
                expected="ascending ids: SGLang hands the states over in the order of the layers",
                found=str(list(request.ids or ())),
                where=request.where,
                next_step="reorder the ids and the columns of the draft's fc.weight together",
            )
        )
    return reading


def _integers(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        raise BoundaryError(
            Diagnostic("EA001", f"{where} is no list of layer ids", expected="integers", found=repr(value))
        )
    return tuple(value)


def _declared() -> Convention | None:
    value = os.environ.get(CONVENTION_ENV)
    if not value:
        return None
    if value not in (Convention.BOUNDARY, Convention.LAYER_OUTPUT):
        raise UsageError(
            Diagnostic(
                "EA901", f"{CONVENTION_ENV} holds no convention", expected="boundary or layer_output", found=value
            )
        )
    return Convention(value)


def _registered(draft: str | None) -> Convention | None:
    from eagle_adapters.registry import convention_for

    if draft is None:
        return None
    try:
        return convention_for(draft)
    except DataError:  # a broken registry must not stop a server; `eagle-adapters registry validate` reports it
        return None
