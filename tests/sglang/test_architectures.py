"""Classes that stock SGLang refuses, of every shape: served right with the plug-in, refused without it."""

from __future__ import annotations

import pytest
from sglang_cases import BOUNDARIES, PROMPTS, STOCK, failed, served

ARCHITECTURES = (
    # decoder to be instrumented, residual kept in the batch object, range loop
    "mixtral",
    # decoder captures only, `get_embed_and_head` and the setter missing
    "arcee",
    "glm4",
    # pair, range loop over all layers
    "gemma",
    "olmoe",
    "stablelm",
    # pair, plain loop
    "ernie4_5",
    # one value, range loop
    "gpt2",
    "granitemoe",
    "starcoder2",
    "persimmon",
    # one value, enumerate
    "olmo",
    "olmo2",
    # one value, slice
    "opt",
    # pair that is scaled; pair that is no sum
    "granite",
    "cohere",
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
