"""Every family of the registry that `transformers` builds: all boundaries 0..N, at text and at image positions."""

from __future__ import annotations

import math

import pytest

from eagle_adapters.registry import load
from eagle_adapters.registry.schema import Refused
from eagle_adapters.verify import runner_for, verify

FAMILIES = load().index.families
CLAIMED = [name for name, row in FAMILIES.items() if not isinstance(row.engines.get("transformers"), Refused | None)]  # type: ignore[call-overload]
MULTIMODAL = {"kimi_k25", "llama4", "qwen2_5_vl", "qwen3_vl", "gemma3", "llava", "internvl", "glm4v", "mistral3"}


@pytest.mark.parametrize("family", CLAIMED)
def test_every_boundary_equals_the_reference(family: str) -> None:
    evidence = verify(family, runner_for("transformers"))
    assert evidence.passed, [str(finding) for finding in evidence.findings]
    assert evidence.boundaries == tuple(range(evidence.num_layers + 1))
    assert {r.prompt for r in evidence.results} == ({"text", "image"} if family in MULTIMODAL else {"text"})
    for result in evidence.results:
        assert result.logits_error is not None
        assert len(result.matches) == (evidence.num_layers + 1) * (1 + (result.prompt == "image"))
        assert (result.image_positions > 0) == (result.prompt == "image")
        for match in result.matches:
            assert match.relative_error < 1e-5
            assert min(e for e in (match.below, match.above) if e is not None) > 0.1, "a neighbour must be far away"
    assert math.isfinite(evidence.max_abs_error)
    assert evidence.nearest_wrong_error > 1000 * evidence.max_abs_error


def test_the_claimed_families_are_many_and_of_many_shapes() -> None:
    assert len(CLAIMED) >= 13
    assert set(CLAIMED) >= MULTIMODAL | {"deepseek_v3", "gpt2", "opt", "mixtral"}
