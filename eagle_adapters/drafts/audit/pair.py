"""What every audit gets: a draft, its target, how the ids are read, and the engine that was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from eagle_adapters.boundaries import Boundary, Reading
from eagle_adapters.diagnostics import Severity
from eagle_adapters.drafts.engine import RELEASES
from eagle_adapters.drafts.spec import DraftSpec
from eagle_adapters.drafts.target import TargetSpec


@dataclass(frozen=True, slots=True)
class Pair:
    """A draft and its target.

    Attributes:
        draft: the draft.
        target: the target.
        reading: how the layer ids are read; None when they cannot hold in any convention, or no states are used.
        engine: `vllm`, `sglang`, or None when none was chosen.
    """

    draft: DraftSpec
    target: TargetSpec
    reading: Reading | None
    engine: str | None

    @property
    def boundaries(self) -> tuple[Boundary, ...] | None:
        """The effective boundaries, or None while they are not known."""
        return None if self.reading is None else self.reading.boundaries

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines to look at: the chosen one, or all."""
        return tuple(RELEASES) if self.engine is None else (self.engine,)

    def severity(self, engine: str, chosen: Severity) -> Severity:
        """`chosen` when that engine was asked for, else a note: another engine may well be used."""
        return chosen if self.engine == engine else Severity.NOTE
