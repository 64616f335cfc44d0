"""Tiny random models of real `transformers` architectures, built from the `tiny.json` of an adapter or any config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import DataError
from eagle_adapters.resources import data_root


def tiny_config(family: str) -> dict[str, Any]:
    """The fields of `adapters/<family>/tiny.json`.

    Raises:
        DataError: EA102, there is no such family, or it has no tiny.json.
    """
    path = data_root() / "adapters" / family / "tiny.json"
    if not path.is_file():
        known = sorted(p.parent.name for p in (data_root() / "adapters").glob("*/tiny.json"))
        raise DataError(
            Diagnostic(
                "EA102",
                f"there is no tiny config for {family!r}",
                expected=", ".join(known),
                found=family,
                where=str(path),
            )
        )
    fields: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return fields


def build_model(fields: Mapping[str, Any], *, device: str = "cpu", dtype: Any = None) -> Any:
    """The `transformers` model of a config, with its own initial weights (none on the meta device); no remote code.

    Args:
        fields: the config.json as a mapping; `architectures` names the class.
        device: `cpu` or `meta`.
        dtype: torch dtype of the parameters, default float32.

    Raises:
        DataError: EA103, `transformers` does not know the class or the model type.
    """
    import torch
    import transformers

    architecture = next(iter(fields.get("architectures") or ()), None)
    cls = getattr(transformers, str(architecture), None)
    model_type = fields.get("model_type")
    if cls is None or model_type is None or model_type not in transformers.CONFIG_MAPPING:
        raise DataError(
            Diagnostic(
                "EA103",
                f"transformers {transformers.__version__} cannot build {architecture} ({model_type})",
                expected="`architectures` and `model_type` that this transformers knows",
                found=f"architectures {fields.get('architectures')}, model_type {model_type!r}",
                next_step="use a config.json with class names of transformers, or upgrade it",
            )
        )
    own = {name: value for name, value in fields.items() if name not in ("model_type", "transformers_version")}
    config = transformers.AutoConfig.for_model(model_type, **own)
    kernel = attention_kernel(config)
    with torch.device(device):
        return cls._from_config(config, dtype=dtype or torch.float32, attn_implementation=kernel).eval()


def attention_kernel(config: Any) -> str | None:
    """The attention to ask `transformers` for: `eager` where its default leaves a part of the model out, else None.

    Its `sdpa` attention takes `softcap` and does not apply it (transformers 5.19.0, integrations/sdpa_attention.py), so
    that the states of Gemma 2 differ from those of both engines in the third digit.
    """
    return "eager" if getattr(config.get_text_config(), "attn_logit_softcapping", None) else None


def build_tiny(family: str | Mapping[str, Any], *, seed: int = 0, dtype: Any = None) -> Any:
    """A tiny model with seeded random weights, large enough for every layer to change the residual stream visibly.

    Args:
        family: a folder of `adapters/`, or the fields of a config.
        seed: equal seeds give equal weights.
        dtype: torch dtype, default float32.

    Raises:
        DataError: EA102, EA103.
    """
    import torch

    fields = tiny_config(family) if isinstance(family, str) else family
    torch_state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        model = build_model(fields, dtype=dtype)
        randomise(model, seed)
    finally:
        torch.set_rng_state(torch_state)
    return model


def randomise(model: Any, seed: int) -> None:
    """Fill a model's parameters in place: matrices N(0, 1/fan_in) times 1.5, norm weights around their initial value.

    Norms that are not all one make a state after the norm differ from the one before it in more than its scale.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1:
                fan_in = parameter[0].numel() if parameter.dim() < 3 else parameter.shape[-1]
                scale = 1.0 if "embed" in name else 1.5 / fan_in**0.5
                parameter.copy_(noise * scale)
            else:
                parameter.add_(noise * 0.1)


def save_tiny(family: str | Mapping[str, Any], folder: Path, *, seed: int = 0, dtype: Any = None) -> Path:
    """Write a tiny checkpoint (config.json, model.safetensors) and return its folder.

    Raises:
        DataError: EA102, EA103.
    """
    model = build_tiny(family, seed=seed, dtype=dtype)
    model.save_pretrained(folder)
    return folder
