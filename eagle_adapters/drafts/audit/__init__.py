"""The audits of a draft against its target: one module for each concern, each a function from a `Pair` to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.drafts.audit.flags import audit_flags
from eagle_adapters.drafts.audit.ids import audit_ids
from eagle_adapters.drafts.audit.loading import audit_loading
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.audit.positions import audit_positions
from eagle_adapters.drafts.audit.precision import audit_precision
from eagle_adapters.drafts.audit.tensors import audit_tensors
from eagle_adapters.drafts.audit.trained import audit_values
from eagle_adapters.drafts.audit.vocabulary import audit_vocabulary
from eagle_adapters.drafts.audit.width import audit_width

__all__ = ["AUDITS", "Pair", "audit"]

AUDITS: tuple[Callable[[Pair], Iterator[Diagnostic]], ...] = (
    audit_ids,
    audit_width,
    audit_vocabulary,
    audit_tensors,
    audit_values,
    audit_flags,
    audit_loading,
    audit_positions,
    audit_precision,
)
"""Every audit, in the order of the findings."""


def audit(pair: Pair) -> list[Diagnostic]:
    """Everything that is wrong or worth knowing about a draft and its target."""
    return [finding for check in AUDITS for finding in check(pair)]
