"""A small Kimi-K2.5 and an EAGLE-3 draft for it, trained here in minutes, so that acceptance is worth its name.

`load_pair()` trains once and caches; `python -m eagle_adapters.testing.pair --out DIR` writes it where you like. The
target is the real `transformers` class (MLA, experts, vision tower) over bytes, trained on sources of the Python
standard library; the draft is of the Llama type in SpecForge's layout. The key of the cache covers this code, the text,
and the version of transformers.
"""

from __future__ import annotations

from eagle_adapters.testing.pair.build import Pair, build_pair, load_pair
from eagle_adapters.testing.pair.corpus import prompts

__all__ = ["Pair", "build_pair", "load_pair", "prompts"]
