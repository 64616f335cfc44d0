"""What a residual stream can look like, and what was found about one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eagle_adapters.diagnostics import Diagnostic


class StreamForm(StrEnum):
    """Where the true residual stream is after a layer."""

    SUM = "sum"
    """`hidden + residual`."""
    COMPLETE = "complete"
    """`hidden`; the second tensor of the pair is not part of it."""
    SINGLE = "single"
    """`hidden`, the only tensor carried."""
    BATCHED = "batched"
    """Kept by the engine in the batch object and read through its own accessor (sglang 0.5.23 `residual_batch`)."""
    STREAMS = "streams"
    """Several parallel streams (AltUp, hyper-connections): no single tensor is the stream."""
    UNKNOWN = "unknown"
    """Not shown by the code."""


READABLE = frozenset({StreamForm.SUM, StreamForm.COMPLETE, StreamForm.SINGLE, StreamForm.BATCHED})


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing the code says, and where."""

    where: str
    says: str


@dataclass(frozen=True, slots=True)
class Residual:
    """How the residual stream is read.

    Attributes:
        form: where the stream is.
        evidence: what in the code shows it, at least one entry.
        tensor_parallel_safe: False when a layer may hand on a partial sum that a later layer reduces; the state is
            then right only with one tensor-parallel rank.
        float16_safe: False when the layers scale the stream in float16, so that states differ by a factor there.
        sequence_parallel_safe: False when layers may hand on only the rank's share of the rows; refuse that mode then.
    """

    form: StreamForm
    evidence: tuple[Evidence, ...]
    tensor_parallel_safe: bool = True
    float16_safe: bool = True
    sequence_parallel_safe: bool = True

    def refusal(self) -> Diagnostic | None:
        """Why the stream cannot be read as one tensor, or None when it can."""
        if self.form in READABLE:
            return None
        reason = (
            "the stream is several tensors"
            if self.form is StreamForm.STREAMS
            else "the residual form cannot be decided"
        )
        return Diagnostic(
            "EA425",
            reason,
            expected="one tensor, or a pair that is shown to be a sum or not",
            found="; ".join(e.says for e in self.evidence),
            where=self.evidence[0].where,
        )
