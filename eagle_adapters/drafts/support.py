"""Whether an engine's class for a target has the EAGLE-3 interface, needs an adapter, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from eagle_adapters.drafts.engine import RELEASES
from eagle_adapters.drafts.native import NATIVE
from eagle_adapters.drafts.target import TargetSpec
from eagle_adapters.errors import DataError


class Status(StrEnum):
    """What it takes to serve a target with a draft."""

    OK = "ok"
    ADAPTER = "adapter"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class Support:
    """The answer for one target in one engine.

    Attributes:
        status: `ok` the engine's own class has the interface, `adapter` this library must supply it, `blocked` refused.
        reason: why, with the release it was read in.
        known: False when nothing but the absence of a class from a list speaks for `adapter`.
        next_step: what to do, where it is not the usual.
    """

    status: Status
    reason: str
    known: bool = True
    next_step: str | None = None


Decide = Callable[[TargetSpec, str], Support]
"""Decides for a target and an engine (`vllm`, `sglang`); `check_draft` takes another one, e.g. a live inspection."""


def engine_support(target: TargetSpec, engine: str) -> Support:
    """What the registry and the sources of the engine's release say; nothing is imported.

    A refusal in the registry comes first; then the classes that have the interface natively; then the families that the
    registry has an adapter for. Anything else is `adapter`, and not known.
    """
    release = RELEASES[engine]
    names = target.architectures
    if not names:
        return Support(Status.BLOCKED, "the target's config names no architectures, so no engine can choose a class")
    row, family = _registered(names, engine)
    if getattr(row, "status", None) == "refused":
        return Support(Status.BLOCKED, f"refused by the registry: {getattr(row, 'reason', '')}")
    native = next((name for name in names if name in NATIVE[engine]), None)
    if native is not None:
        return Support(Status.OK, f"{native} has the interface in {release}")
    respelt = next((name for name in target.engine_names if name in NATIVE[engine]), None)
    if respelt is not None:
        return Support(
            Status.ADAPTER,
            f"{release} knows this class as {respelt}",
            known=False,
            next_step=f'write "architectures": ["{respelt}"] in the target\'s config.json',
        )
    if row is not None:
        status = getattr(row, "status", "unproven")
        return Support(Status.ADAPTER, f"the family {family} has an adapter for {engine}, {status}")
    return Support(Status.ADAPTER, f"{names[0]} has no complete interface in {release}", known=False)


def _registered(names: tuple[str, ...], engine: str) -> tuple[object | None, str | None]:
    from eagle_adapters import registry

    try:
        index = registry.load().index
    except DataError:
        return None, None  # without its data files the library still reads and audits
    for family, row in index.families.items():
        if any(name in row.architectures for name in names):
            return next((status for known, status in row.engines.items() if known == engine), None), family
    return None, None
