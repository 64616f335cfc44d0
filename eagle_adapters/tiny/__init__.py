"""Tiny random models of real architectures, and inputs for them: what proofs and tests run on."""

from eagle_adapters.tiny.inputs import image_inputs, image_token, picture, text_inputs
from eagle_adapters.tiny.models import build_model, build_tiny, save_tiny, tiny_config

__all__ = [
    "build_model",
    "build_tiny",
    "image_inputs",
    "image_token",
    "picture",
    "save_tiny",
    "text_inputs",
    "tiny_config",
]
