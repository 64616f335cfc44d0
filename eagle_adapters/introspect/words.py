"""What names tell about a stack of layers: whether it holds the text, another modality, or a draft."""

from __future__ import annotations

import re


def _table(words: str) -> frozenset[str]:
    return frozenset(words.split())


TEXT = _table("language text txt llm lm thinker causal languagemodel textmodel")
"""Words of a name that mark the text decoder."""

OTHER = _table(
    """
    vision visual visuals vit vlm image images img pixel video audio audios speech acoustic sound voice whisper
    siglip clip sam dino tower towers projector proj connector merger mergers resampler qformer perceiver abstractor
    talker codec codebook code2wav token2wav vocoder vae dit diffusion flow depth local predictor
    draft drafter mtp nextn eagle eagle3 medusa speculator adapter adapters teacher
    """
)
"""Words of a name that mark something other than the text decoder: another modality, speech output, a draft."""

LAYER_LISTS = ("layers", "h", "blocks", "block", "layer", "decoder_layers", "transformer_layers", "decoder_blocks")
"""Usual names of the list of decoder layers."""

BLOCK = _table("attn attention mixer mamba ssm recurrent temporal mlp ffn feedforward ff experts moe norm layernorm ln")
"""Words of the submodules of a decoder layer."""

_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")


def words_of(name: str) -> frozenset[str]:
    """The lower-case words of an attribute or class name: `vision_tower`, `Kimi_K25VisionModel` both hold `vision`."""
    parts = name.split("_")
    words = {piece.lower() for part in parts for piece in _PIECE.findall(part)} | {part.lower() for part in parts}
    return frozenset(words | {word.rstrip("0123456789") for word in words})


def says_text(name: str) -> bool:
    """Whether a name marks the text decoder."""
    return bool(words_of(name) & TEXT)


def says_other(name: str) -> bool:
    """Whether a name marks another modality or a draft, and not the text as well."""
    words = words_of(name)
    return bool(words & OTHER) and not words & TEXT
