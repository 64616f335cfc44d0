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
from eagle_adapters.verify.compare import Reference


def reference_states(model: nn.Module, inputs: Mapping[str, Any], image_token: int | None) -> Reference:
    """Every boundary 0..N and the logits of one prompt (batch 1), in the model's dtype.

    Raises:
        AdaptationError: EA610, the model cannot be cut down.
    """
    anatomy = inspect_model(model)
    ids = inputs["input_ids"][0]
    image = (ids == image_token) if image_token is not None else torch.zeros_like(ids, dtype=torch.bool)
    layers = _module(model, _layers(anatomy))
    states: dict[int, Tensor] = {}
    with torch.no_grad():
        logits = model(**inputs, use_cache=False).logits[0]
        for boundary in range(len(layers) + 1):
            with _cut(model, anatomy, boundary):
                states[boundary] = _last_state(model, inputs)[0]
    norm = _module(model, anatomy.final_norm.path) if anatomy.final_norm is not None else nn.Identity()
    return Reference(states, logits, _finisher(model, anatomy), lambda state: _no_grad(norm, state), image)


def _no_grad(module: nn.Module, state: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = module(state)
    return result


@contextmanager
def _cut(model: nn.Module, anatomy: Anatomy, boundary: int) -> Iterator[None]:
    """The model with its first `boundary` layers only and no final norm, for the time of the context."""
    owner, name = _owner(model, _layers(anatomy))
    whole = getattr(owner, name)
    kept: Any = (
        type(whole)(dict(list(whole.items())[:boundary])) if hasattr(whole, "items") else type(whole)(whole[:boundary])
    )
    norm = None if anatomy.final_norm is None else _owner(model, anatomy.final_norm.path)
    norm_module = None if norm is None else getattr(*norm)
    config = getattr(owner, "config", None)
    depth = {
        field: getattr(config, field)
        for field in ("num_hidden_layers", "n_layer")
        if isinstance(getattr(config, field, None), int)
    }
    try:
        setattr(owner, name, kept)
        if norm is not None:
            setattr(*norm, nn.Identity())
        yield
    finally:
        setattr(owner, name, whole)
        if norm is not None:
            setattr(*norm, norm_module)
        for field, value in depth.items():
            setattr(config, field, value)


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
            Diagnostic("EA610", f"{anatomy.target} has no head, so that its logits cannot be rebuilt", found="no lm_head")
        )
    head = _module(model, anatomy.head.path)
    norm = _module(model, anatomy.final_norm.path) if anatomy.final_norm is not None else nn.Identity()
    config = model.config.get_text_config(decoder=True)
    scale = getattr(config, "logit_scale", None)
    cap = getattr(config, "final_logit_softcapping", None)

    def finish(state: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = head(norm(state))
        if isinstance(scale, float):
            logits = logits * scale
        return torch.tanh(logits / cap) * cap if cap else logits

    return finish


def _layers(anatomy: Anatomy) -> str:
    assert anatomy.layers is not None, "a live model has layers"
    return anatomy.layers.path


def _owner(model: nn.Module, path: str) -> tuple[Any, str]:
    parent, _, name = path.rpartition(".")
    return _module(model, parent), name


def _module(model: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        model = getattr(model, part)
    return model
