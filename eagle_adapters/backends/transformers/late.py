"""What the methods of a wrapped class call: they find the parts of a model when they are used, not when planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from eagle_adapters.backends.base import installed_version
from eagle_adapters.backends.transformers.capture import Capture, open_capture
from eagle_adapters.backends.transformers.planning import layers_path, plan_model
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect import inspect_model
from eagle_adapters.introspect.anatomy import resolve
from eagle_adapters.plan import Refusal


def capture_of(model: Any, boundaries: Sequence[int] | None, *, decoder: str | None) -> Capture:
    """A capture of a model whose class was wrapped.

    Raises:
        AdaptationError: EA2xx or EA403, the model cannot be captured.
        BoundaryError: as `open_capture`.
    """
    plan = plan_model(model, installed_version("transformers") or "", decoder=decoder)
    if isinstance(plan, Refusal):
        raise AdaptationError(plan.reasons)
    assert plan.anatomy is not None, "a plan for a live model has its anatomy"
    anatomy = plan.anatomy
    return open_capture(resolve(model, anatomy.decoder.path), resolve(model, layers_path(anatomy)), boundaries)


def embed_and_head_of(model: Any, *, decoder: str | None) -> tuple[Tensor, Tensor]:
    """The embedding and head weights of a model whose class was wrapped, each [vocab, hidden].

    Raises:
        AdaptationError: EA301, the model has no embedding or no head.
    """
    anatomy = inspect_model(model, decoder=decoder)
    if anatomy.embedding is None or anatomy.head is None:
        lacking = "embedding" if anatomy.embedding is None else "head"
        raise AdaptationError(Diagnostic("EA301", f"{type(model).__qualname__} has no {lacking}", where=anatomy.target))
    return resolve(model, anatomy.embedding.path).weight, resolve(model, anatomy.head.path).weight
