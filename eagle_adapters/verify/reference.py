"""The independent reference: a plain `transformers` model cut down to its first b layers, with its final norm removed.

No hook and no output recorder takes part: what such a model returns as its last hidden state *is* boundary b. The
adapted model is never used here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect import Anatomy, inspect_model
from eagle_adapters.introspect.anatomy import resolve
from eagle_adapters.verify.compare import Reference


def reference_states(model: nn.Module, inputs: Mapping[str, Any], image_token: int | None) -> Reference:
    """Every boundary 0..N and the logits of one prompt (batch 1), in the model's dtype.

    Raises:
        AdaptationError: EA610, the model cannot be cut down.
    """
    anatomy = inspect_model(model)
    ids = inputs["input_ids"][0]
    image = (ids == image_token) if image_token is not None else torch.zeros_like(ids, dtype=torch.bool)
    layers = resolve(model, _layers(anatomy))
    states: dict[int, Tensor] = {}
    with torch.no_grad():
        logits = model(**inputs, use_cache=False).logits[0]
        for boundary in range(len(layers) + 1):
            with _cut(model, anatomy, boundary):
                states[boundary] = _last_state(model, inputs)[0]
    norm = resolve(model, anatomy.final_norm.path) if anatomy.final_norm is not None else nn.Identity()
    return Reference(states, logits, _finisher(model, anatomy), lambda state: _no_grad(norm, state), image)


def _no_grad(module: nn.Module, state: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = module(state)
    return result


AFTER_NORM = ("project_out",)
"""What some decoders apply between the final norm and the head (OPT); it is taken away and put back with the norm."""


@contextmanager
def _cut(model: nn.Module, anatomy: Anatomy, boundary: int) -> Iterator[None]:
    """The model with its first `boundary` layers only and no final norm, for the time of the context."""
    owner, name = _owner(model, _layers(anatomy))
    whole = getattr(owner, name)
    kept: Any = (
        type(whole)(dict(list(whole.items())[:boundary])) if hasattr(whole, "items") else type(whole)(whole[:boundary])
    )
    replaced = [(owner, name, whole)]
    if anatomy.final_norm is not None:
        replaced.append((*(norm := _owner(model, anatomy.final_norm.path)), getattr(*norm)))
    replaced += [(owner, after, module) for after, module in _after_norm(owner)]
    try:
        for place, attribute, _ in replaced:
            setattr(place, attribute, kept if attribute == name and place is owner else nn.Identity())
        yield
    finally:
        for place, attribute, module in replaced:
            setattr(place, attribute, module)


def _after_norm(decoder: Any) -> list[tuple[str, nn.Module]]:
    found = ((name, getattr(decoder, name, None)) for name in AFTER_NORM)
    return [(name, module) for name, module in found if isinstance(module, nn.Module)]


def _last_state(model: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    base = getattr(model, getattr(model, "base_model_prefix", "") or "model", None)
    if base is not None:
        output: Tensor = base(**inputs, use_cache=False).last_hidden_state
        return output
    # A wrapper without a base model: take its head away and read the "logits".
    head = _owner(model, "language_model.lm_head")
    kept = getattr(*head)
    try:
        setattr(*head, nn.Identity())
        logits: Tensor = model(**inputs, use_cache=False).logits
        return logits
    finally:
        setattr(*head, kept)


def _finisher(model: nn.Module, anatomy: Anatomy) -> Callable[[Tensor], Tensor]:
    """Final norm, head, and the scale or cap that the config names."""
    if anatomy.head is None:
        raise AdaptationError(
            Diagnostic(
                "EA610", f"{anatomy.target} has no head, so that its logits cannot be rebuilt", found="no lm_head"
            )
        )
    head = resolve(model, anatomy.head.path)
    norm = resolve(model, anatomy.final_norm.path) if anatomy.final_norm is not None else nn.Identity()
    after = [module for _, module in _after_norm(resolve(model, anatomy.decoder.path))]
    config = model.config.get_text_config(decoder=True)
    scale = getattr(config, "logit_scale", None) or 1.0
    divisor = getattr(config, "logits_scaling", None) or 1.0
    cap = getattr(config, "final_logit_softcapping", None)

    def finish(state: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = nn.Sequential(norm, *after, head)(state) * scale / divisor
        return torch.tanh(logits / cap) * cap if cap else logits

    return finish


def _layers(anatomy: Anatomy) -> str:
    assert anatomy.layers is not None, "a live model has layers"
    return anatomy.layers.path


def _owner(model: nn.Module, path: str) -> tuple[Any, str]:
    parent, _, name = path.rpartition(".")
    return resolve(model, parent), name
