"""Inputs for a `transformers` model: token ids, and a picture laid out the way the model's vision tower takes it.

The layouts are those of the models' own image processors; they are written here in plain torch because several of
those processors need torchvision, which an inference machine need not have.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import DataError

_IMAGE_TOKEN_FIELDS = ("image_token_id", "image_token_index", "media_placeholder_token_id", "img_context_token_id")


def picture(path: Path | None = None, size: int = 56) -> Any:
    """A picture as a float tensor [3, size, size] in 0..1: the file's, or a drawn one (sky, sun, hill) without a path.

    Its values are multiples of 1/255, so that an engine that is given it as a file sees the same picture.

    Raises:
        DataError: EA104, the file is no picture that Pillow reads.
    """
    import torch

    if path is None:
        y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
        sky = torch.stack([0.4 + 0.3 * y, 0.6 + 0.2 * y, 1.0 - 0.3 * y])
        sun = ((x - 0.7) ** 2 + (y - 0.25) ** 2 < 0.02).float()
        hill = (y > 0.75 - 0.15 * torch.sin(6.0 * x)).float()
        image = sky * (1 - sun) + torch.tensor([1.0, 0.9, 0.3])[:, None, None] * sun
        drawn = image * (1 - hill) + torch.tensor([0.2, 0.5, 0.2])[:, None, None] * (0.5 + 0.5 * x) * hill
        return (drawn * 255).round() / 255
    try:
        import numpy as np
        from PIL import Image

        with Image.open(path) as opened:
            resized = opened.convert("RGB").resize((size, size))
        return torch.from_numpy(np.asarray(resized).copy()).permute(2, 0, 1).float() / 255
    except ImportError as error:
        raise DataError(
            Diagnostic("EA104", f"{path} needs Pillow to be read", next_step="pip install pillow")
        ) from error
    except OSError as error:
        raise DataError(Diagnostic("EA104", f"{path} is not a picture", found=str(error), where=str(path))) from error


def text_inputs(model: Any, *, batch: int = 1, tokens: int = 12, seed: int = 0) -> dict[str, Any]:
    """Random token ids [batch, tokens] that avoid the special ids of the model, with their mask."""
    import torch

    config = model.config.get_text_config(decoder=True)
    special = _special_ids(model.config)
    ordinary = torch.tensor([i for i in range(3, min(config.vocab_size, 900)) if i not in special])
    generator = torch.Generator().manual_seed(seed)
    ids = ordinary[torch.randint(len(ordinary), (batch, tokens), generator=generator)]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def image_inputs(model: Any, image: Any = None, *, tokens: int = 12, seed: int = 0) -> dict[str, Any]:
    """Token ids with a picture in the middle, and the picture as the model's vision tower takes it.

    Args:
        model: a multimodal `transformers` model.
        image: a tensor [3, H, W] in 0..1; default the drawn picture.
        tokens: the number of text tokens.
        seed: of the text tokens.

    Raises:
        DataError: EA105, the model takes no picture, or in a layout that is not known here.
    """
    import torch

    token = image_token(model.config)
    parameters = inspect.signature(model.forward).parameters
    if token is None or "pixel_values" not in parameters:
        raise _no_image(model, "no image token in its config" if token is None else "no `pixel_values` in its forward")
    extra = _pixels(model, picture() if image is None else image, parameters)
    parameter = next(model.parameters())
    extra = {k: v.to(parameter.dtype) if v.is_floating_point() else v for k, v in extra.items()}
    extra = {k: v.to(parameter.device) for k, v in extra.items()}
    with torch.no_grad():
        features = model.get_image_features(**extra)
    count = _count_features(features)
    text = text_inputs(model, tokens=tokens, seed=seed)["input_ids"][0]
    ids = torch.cat([text[: tokens // 2], torch.full((count,), token), text[tokens // 2 :]])[None].to(parameter.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **extra}
    is_image = (ids == token).long()
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in parameters:
            inputs[name] = is_image
    return inputs


def _count_features(features: Any) -> int:
    """How many image tokens the vision tower's output stands for."""
    pooled = getattr(features, "pooler_output", None)
    features = pooled if pooled is not None else getattr(features, "last_hidden_state", features)
    if isinstance(features, list | tuple):
        return sum(_count_features(part) for part in features)
    return int(features.shape[:-1].numel())


def image_token(config: Any) -> int | None:
    """The id of the image placeholder token, or None when the config has none."""
    found = (getattr(config, name, None) for name in _IMAGE_TOKEN_FIELDS)
    return next((value for value in found if isinstance(value, int)), None)


def _special_ids(config: Any) -> set[int]:
    fields = {**config.to_dict(), **config.get_text_config(decoder=True).to_dict()}
    return {v for k, v in fields.items() if isinstance(v, int) and k.endswith(("token_id", "token_index"))}


def _pixels(model: Any, image: Any, parameters: Any) -> dict[str, Any]:
    import torch

    vision = model.config.vision_config
    image = (image - 0.5) / 0.5
    patch = vision.patch_size if isinstance(getattr(vision, "patch_size", None), int) else vision.patch_size[0]
    if "image_grid_thw" not in parameters:
        size = vision.image_size if isinstance(vision.image_size, int) else vision.image_size[0]
        scaled = torch.nn.functional.interpolate(image[None], (size, size), mode="bilinear", antialias=True)
        if "image_sizes" in parameters and hasattr(model.config, "image_grid_pinpoints"):
            return {"pixel_values": scaled[None], "image_sizes": torch.tensor([[size, size]])}
        wants_size = "image_sizes" in inspect.signature(model.get_image_features).parameters
        return {"pixel_values": scaled} | ({"image_sizes": torch.tensor([[size, size]])} if wants_size else {})
    height, width = image.shape[1] // patch, image.shape[2] // patch
    tiles = image[:, : height * patch, : width * patch].reshape(3, height, patch, width, patch)
    grid = torch.tensor([[1, height, width]])
    temporal = getattr(vision, "temporal_patch_size", None)
    if temporal is None:
        # [patches, 3, patch, patch] in row order: transformers 5.19.0, models/kimi_k25/image_processing_kimi_k25.py
        return {"pixel_values": tiles.permute(1, 3, 0, 2, 4).reshape(-1, 3, patch, patch), "image_grid_thw": grid}
    # [patches, 3 * temporal * patch * patch], merge blocks together: models/qwen2_vl/image_processing_qwen2_vl.py
    merge = vision.spatial_merge_size
    blocks = tiles.reshape(3, height // merge, merge, patch, width // merge, merge, patch)
    rows = blocks.permute(1, 4, 2, 5, 0, 3, 6).reshape(height * width, 3, 1, patch, patch)
    return {"pixel_values": rows.expand(-1, -1, temporal, -1, -1).reshape(height * width, -1), "image_grid_thw": grid}


def _no_image(model: Any, why: str) -> DataError:
    return DataError(
        Diagnostic(
            "EA105",
            f"{type(model).__qualname__} takes no picture here",
            expected="an image token and a `pixel_values` layout known to eagle_adapters.tiny.inputs",
            found=why,
            next_step="verify it with text only",
        )
    )
