"""Classes that stock SGLang refuses, of every shape: served right with the plug-in, refused without it."""

from __future__ import annotations

import pytest
from sglang_cases import BOUNDARIES, PROMPTS, STOCK, failed, served

ARCHITECTURES = (
    # pair, range loop over all layers, tied head
    "gemma",
    # one value, slice; its own `get_embed_and_head` fails
    "opt",
    # pair, plain loop
    "ernie4_5",
    # one value, range loop
    "persimmon",
    # pair that is no sum
    "cohere",
    # flattened wrapper around a decoder that captures
    "qwen2_vl",
    # wrappers whose inner model the checkpoint chooses
    "llava_pixtral",
    "mistral3",
    # residual kept in the batch object
    "mixtral",
    # decoder captures, setter and `get_embed_and_head` are missing
    "arcee",
    "glm4",
    # decoder captures for DFlash only
    "laguna",
    # native hook, but no `get_embed_and_head`
    "qwen2_moe",
    # pair, range loop
    "olmoe",
    "stablelm",
    # pair that is scaled
    "granite",
    # one value, range loop
    "gpt2",
    "granitemoe",
    "starcoder2",
    # one value, enumerate
    "olmo",
    "olmo2",
)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_that_stock_refuses(case_of, session, tmp_path, name):
    case = case_of(name)
    for prompt, tokens, greedy in zip(PROMPTS, case.tokens, case.greedy, strict=True):
        assert tokens == greedy[len(prompt) - 1 : -1]
    draft = case.draft("boundary", (2, 4, 5))
    stock = session.run(case.job(draft=draft, environment=STOCK))
    failed(stock)
    assert "does not implement set_eagle3_layers_to_capture" in stock.log or "get_embed_and_head" in stock.log

    accepted = []
    for ids in ((2, 4, 5), (1, 3, 4)):
        seen = tmp_path / str(ids)
        seen.mkdir()
        outcome = served(session.run(case.job(draft=case.draft(f"ids-{ids}", ids), observe=str(seen))))
        assert outcome.tokens == case.tokens
        case.check_states(seen)
        assert f"boundaries {list(BOUNDARIES)} of 8" in outcome.log
        accepted.append(outcome.accepted)
    assert accepted[0] == accepted[1] > 0
