"""Every shape of target that stock vLLM refuses: it is served, with the right tokens and the right states."""

from __future__ import annotations

from pathlib import Path

import pytest

BOUNDARIES = (2, 4, 5)

REFUSED = "does not support EAGLE3 interface"
NO_MIXIN = "must inherit from EagleModelMixin"
NO_MODEL = "'model' attribute"
NO_IMAGE = "Config' object has no attribute 'image_token_index'"
TARGETS = {
    # the pair is a sum
    "gemma3": REFUSED,
    "gemma": REFUSED,
    "mixtral": REFUSED,
    "nemotron": REFUSED,
    # the pair is not a sum
    "cohere2": REFUSED,
    "exaone4": REFUSED,
    "stablelm": REFUSED,
    "phimoe": REFUSED,
    # a single value
    "gpt2": NO_MODEL,
    "falcon": NO_MODEL,
    "gptj": NO_MODEL,
    "opt": "'embed_tokens' or 'embedding' attribute",
    # the inner model is chosen by the checkpoint
    "llava_gemma2": NO_MIXIN,
    "llava_onevision": REFUSED,
    # the decoder captures, the wrapper lacks the hook
    "aria": NO_MODEL,
    "idefics3": NO_IMAGE,
    # the class claims support and is broken
    "exaone4_5": NO_MIXIN,
    "cohere_compass": NO_IMAGE,
    "qwen2_as_mimo": "too many values to unpack",
}
"""Case -> what stock vLLM 0.32.0 says when it is asked to serve it with EAGLE-3."""

SERVED_AS = {"qwen2_as_mimo": {"hf_overrides": {"architectures": ["MiMoForCausalLM"]}}}
"""Case -> options for a class that transformers does not have: without its MTP layers MiMo is a Qwen2."""


@pytest.mark.parametrize("name", TARGETS)
def test_stock_refuses(name, cases, stock) -> None:
    outcome = stock.run(cases(name).job(cases(name).draft(), options=SERVED_AS.get(name, {})))
    assert outcome.error is not None
    assert TARGETS[name] in outcome.error


@pytest.mark.parametrize("name", TARGETS)
def test_serves_the_right_states(name, cases, stock, ours, tmp_path: Path) -> None:
    case, options = cases(name), SERVED_AS.get(name, {})
    plain = stock.run(case.job(options=options))
    assert plain.error is None
    assert plain.tokens == [case.generated], "the tiny checkpoint is not the model of the reference"

    outcome = ours.run(case.job(case.draft(), observe=str(tmp_path), options=options))
    assert outcome.error is None
    assert outcome.tokens == plain.tokens
    assert outcome.workers[0]["layers"][0] == list(BOUNDARIES)
    case.check_states(tmp_path)
    assert outcome.accepted > 0

    declared = {"EAGLE_ADAPTERS_CONVENTION": "boundary"}
    shifted = ours.run(case.job(case.shifted(), environment=declared, options=options))
    assert shifted.error is None
    assert shifted.tokens == plain.tokens
    assert shifted.workers[0]["layers"][0] == [b - 1 for b in BOUNDARIES]
    assert shifted.accepted / shifted.drafted < outcome.accepted / outcome.drafted
