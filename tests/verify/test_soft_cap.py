"""A target that caps its attention is computed with the cap, whatever attention transformers prefers."""

from __future__ import annotations

import torch

from eagle_adapters.tiny import build_tiny, save_tiny, tiny_config
from eagle_adapters.verify.transformers import load_model


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(3, 23)[None]).logits


def test_the_cap_of_gemma2_takes_part(tmp_path) -> None:
    fields = tiny_config("gemma2")
    capped, free = (build_tiny({**fields, "attn_logit_softcapping": cap}) for cap in (0.05, None))
    assert (logits(capped) - logits(free)).abs().max() > 0.01
    loaded = load_model(save_tiny("gemma2", tmp_path))
    assert loaded.config.attn_logit_softcapping is not None
    torch.testing.assert_close(logits(loaded), logits(build_tiny("gemma2")))


def test_others_keep_the_attention_transformers_prefers() -> None:
    assert build_tiny("llama").config._attn_implementation == "sdpa"
