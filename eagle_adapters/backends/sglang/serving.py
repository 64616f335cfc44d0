"""Adapt the target of a running server, and make a failure impossible to miss."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NoReturn

from eagle_adapters.apply import LOCK, apply_plan
from eagle_adapters.backends.sglang import BACKEND
from eagle_adapters.backends.sglang.hooks import SETTER
from eagle_adapters.backends.sglang.request import read_request, remember
from eagle_adapters.backends.unverified import unverified
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError, EagleAdaptersError
from eagle_adapters.plan import Refusal

logger = logging.getLogger("eagle_adapters.sglang")


def adapt_model(model: Any, model_config: Any) -> None:
    """Adapt the classes of a target that was just constructed, before its weights are loaded; never raises.

    SGLang's constructors bind no method, so what is set on the classes now is what every later call finds. When
    the target cannot be adapted, its class's hooks raise the reasons from now on.

    Args:
        model: the target.
        model_config: SGLang's configuration of it.
    """
    cls = type(model)
    with LOCK:
        try:
            plan = BACKEND.plan(model)
            if not isinstance(plan, Refusal):
                apply_plan(plan)
                logger.info("%s speaks EAGLE-3: %d edits", cls.__qualname__, len(plan.edits))
                _warn_unverified(cls, plan.engine_version, model_config)
                return
            reasons = plan.reasons
        except EagleAdaptersError as error:
            reasons = tuple(error.diagnostics)
        except Exception as error:  # the plug-in must never break serving by itself: the hook says what went wrong
            logger.exception("eagle-adapters failed on %s", cls.__qualname__)
            next_step = "report this with the log; EAGLE_ADAPTERS=off serves it as stock SGLang does"
            reasons = (
                Diagnostic("EA999", f"adapting {cls.__qualname__} failed", found=repr(error), next_step=next_step),
            )
    refuse(cls, reasons)


def refuse(cls: type, reasons: Sequence[Diagnostic]) -> None:
    """Log why a class cannot be served with EAGLE-3, and make the hooks that the engine calls raise it.

    `get_embed_and_head` is the first that it calls (sglang 0.5.23, srt/speculative/pp_draft_embedding.py), so that a
    class without it would end in an AttributeError that says nothing.
    """
    error = AdaptationError(reasons)
    logger.error(
        "%s cannot be served with EAGLE-3 (EAGLE_ADAPTERS=off serves it as stock SGLang does):\n%s",
        cls.__qualname__,
        error,
    )

    def raise_reasons(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise error

    setattr(cls, SETTER, raise_reasons)
    if not hasattr(cls, "get_embed_and_head"):
        cls.get_embed_and_head = raise_reasons  # type: ignore[attr-defined]


def _warn_unverified(cls: type, version: str, model_config: Any) -> None:
    """Say, on one rank, that nobody has verified the boundaries of an adapted class."""
    from sglang.srt.runtime_context import get_parallel

    names = getattr(model_config.hf_config, "architectures", None) or ()
    line = unverified(cls, "sglang", version, architectures=names, checkpoint=str(model_config.model_path))
    if line is not None and get_parallel().tp_rank == 0:
        logger.warning("%s", line)


def remember_draft(draft_model_config: Any) -> list[int] | None:
    """Read what the draft asks for, remember it for the setter, and give the ids as the engine passes them on.

    Raises:
        BoundaryError: EA001, EA541.
    """
    config = draft_model_config.hf_config
    request = read_request(config.to_dict(), getattr(draft_model_config, "model_path", None))
    remember(request)
    return None if request.ids is None else list(request.ids)
