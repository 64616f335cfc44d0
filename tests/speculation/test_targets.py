"""Verification over many target classes: whatever is drafted, the tokens are the target's own, or the class is refused.

The drafts here come from an oracle that knows the text and errs on purpose, so that every length of path is accepted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle_adapters import unwrap
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.errors import UsageError
from eagle_adapters.speculation import speculate as module
from eagle_adapters.speculation.drafter import Drafter
from eagle_adapters.speculation.proposal import Proposal
from eagle_adapters.speculation.state import DraftState
from eagle_adapters.speculation.tree import Tree
from eagle_adapters.tiny import build_tiny, image_inputs

NEW = 14
FAMILIES = (
    *("llama", "gpt2", "opt", "mixtral", "stablelm", "deepseek_v2", "kimi_k25"),
    *("gemma3", "cohere2", "llava", "qwen2_5_vl", "qwen3_vl"),
)


@pytest.fixture
def any_drafter(tmp_path: Path) -> Any:
    def make(model: Any) -> Drafter:
        config = model.config.get_text_config(decoder=True)
        fields = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": config.hidden_size,
            "intermediate_size": 16,
            "num_attention_heads": 2,
            "head_dim": 8,
            "vocab_size": config.vocab_size,
            "num_aux_hidden_states": 2,
        }
        (tmp_path / "config.json").write_text(json.dumps(fields))
        return Drafter(read_draft(tmp_path / "config.json")).requires_grad_(False)

    return make


class Oracle:
    """Drafts from the text that the target will write; some of it is wrong."""

    def __init__(self, prompts: list[int], texts: list[list[int]]) -> None:
        self.prompts, self.texts, self.chance = prompts, texts, random.Random(0)

    def next_tokens(self, side: DraftState, steps: int) -> list[list[int]]:
        begins = [int(p) + 2 - prompt for p, prompt in zip(side.position, self.prompts, strict=True)]
        return [[*text, *[0] * 50][b : b + steps] for text, b in zip(self.texts, begins, strict=True)]

    def chain(self, side: DraftState, sure: torch.Tensor, steps: int, **_: Any) -> Proposal:
        rows = [
            [token if self.chance.random() < 0.7 else token ^ 1 for token in row]
            for row in self.next_tokens(side, steps)
        ]
        tokens = torch.cat([sure[:, None], torch.tensor(rows)], dim=1)
        return Proposal(tokens, torch.arange(-1, steps).expand(len(rows), -1))

    def tree(self, side: DraftState, sure: torch.Tensor, steps: int, tree: Tree) -> Proposal:
        """Nodes 2, 4, 5 are right; 1 is wrong, 3 is right but hangs on a wrong one."""
        rows = [[a ^ 1, a, b, b, c] for a, b, c in self.next_tokens(side, 3)]
        parents = torch.tensor([[-1, 0, 0, 1, 2, 4]]).expand(len(rows), -1)
        return Proposal(torch.cat([sure[:, None], torch.tensor(rows)], dim=1), parents)


@pytest.fixture
def tiny(request: pytest.FixtureRequest) -> Iterator[Any]:
    model = build_tiny(request.param)
    yield model
    if hasattr(model, "eagle3_capture"):
        unwrap(model)


def alone(model: Any, row: list[int], **inputs: Any) -> list[int]:
    ids = torch.tensor([row])
    out = model.generate(
        ids,
        **{"attention_mask": torch.ones_like(ids), **inputs},
        max_new_tokens=NEW,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return list(out[0, len(row) :].tolist())


@pytest.mark.parametrize("tiny", FAMILIES, indirect=True)
def test_tokens_are_those_of_the_target(tiny: Any, any_drafter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [[(7 * k + 3 * i) % 90 + 5 for i in range(9 + 4 * k)] for k in range(3)]
    texts = [alone(tiny, row) for row in rows]
    oracle = Oracle([len(row) for row in rows], texts)
    monkeypatch.setattr(module, "draft_chain", oracle.chain)
    monkeypatch.setattr(module, "draft_tree", oracle.tree)
    drafter = any_drafter(tiny)
    for tree in (None, Tree(2, 5)):
        out = module.speculate(tiny, drafter, rows, tree=tree, max_new_tokens=NEW, boundaries=(1, 2))
        assert [list(tokens) for tokens in out.tokens] == texts
        assert sum(map(sum, out.accepted)) > 6


@pytest.mark.parametrize("tiny", ["kimi_k25", "llava"], indirect=True)
def test_a_picture_may_be_in_the_prompt(tiny: Any, any_drafter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = image_inputs(tiny)
    row = inputs.pop("input_ids")[0].tolist()
    inputs.pop("attention_mask")
    text = alone(tiny, row, **inputs)
    monkeypatch.setattr(module, "draft_chain", Oracle([len(row)], [text]).chain)
    out = module.speculate(tiny, any_drafter(tiny), [row], max_new_tokens=NEW, boundaries=(1, 2), inputs=inputs)
    assert list(out.tokens[0]) == text
    assert sum(out.accepted[0]) > 1


@pytest.mark.parametrize("tiny", ["qwen2_5_vl"], indirect=True)
def test_pictures_that_move_positions_are_refused(tiny: Any, any_drafter: Any) -> None:
    inputs = image_inputs(tiny)
    ids = inputs.pop("input_ids")
    with pytest.raises(UsageError, match="EA804"):
        module.speculate(tiny, any_drafter(tiny), ids, max_new_tokens=4, boundaries=(1, 2), inputs=inputs)


@pytest.mark.parametrize("tiny", ["gemma3"], indirect=True)
def test_targets_that_cannot_take_tokens_back_are_refused(tiny: Any, any_drafter: Any) -> None:
    text = tiny.config.get_text_config(decoder=True)
    text.sliding_window = 8
    with pytest.raises(UsageError, match="EA804"):
        module.speculate(tiny, any_drafter(tiny), [list(range(5, 30))], max_new_tokens=4, boundaries=(1, 2))
