"""Decoding with the trained draft: the target's own tokens, in fewer passes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from eagle_adapters.errors import BoundaryError, UsageError
from eagle_adapters.speculation.recording import record, replay
from eagle_adapters.speculation.speculate import speculate
from eagle_adapters.speculation.tree import Tree
from eagle_adapters.testing.pair import Pair, prompts

pytestmark = pytest.mark.pair
NEW = 16


def plain(target: Any, rows: list[list[int]], new: int = NEW) -> list[tuple[int, ...]]:
    ids = torch.tensor(rows)
    out = target.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, do_sample=False, eos_token_id=None
    )
    return [tuple(row) for row in out[:, ids.shape[1] :].tolist()]


def test_greedy_tokens_are_those_of_plain_generation_on_200_prompts(target: Any, drafter: Any) -> None:
    rows = prompts(200, 24)
    passes = tokens = 0
    for start in range(0, 200, 50):
        part = rows[start : start + 50]
        out = speculate(target, drafter, part, max_new_tokens=NEW)
        assert list(out.tokens) == plain(target, part)
        passes, tokens = passes + sum(out.target_passes), tokens + sum(map(len, out.tokens))
    assert tokens == 200 * NEW
    assert passes < tokens / 1.5


@pytest.mark.parametrize(
    ("steps", "tree"), [(1, None), (5, None), (3, Tree(3, 8)), (4, Tree(2, 20)), (2, Tree(500, 9))]
)
def test_every_shape_of_draft_is_lossless(target: Any, drafter: Any, steps: int, tree: Tree | None) -> None:
    rows = prompts(12, 24)
    assert list(speculate(target, drafter, rows, steps=steps, tree=tree, max_new_tokens=NEW).tokens) == plain(
        target, rows
    )


def test_a_tree_accepts_at_least_what_its_best_branch_accepts(target: Any, drafter: Any) -> None:
    rows = prompts(24, 24)
    chain = speculate(target, drafter, rows, max_new_tokens=NEW)
    tree = speculate(target, drafter, rows, tree=Tree(4, 24), max_new_tokens=NEW)
    assert sum(tree.target_passes) < sum(chain.target_passes)


def test_rows_of_different_lengths_do_not_disturb_each_other(target: Any, drafter: Any) -> None:
    rows = [row[: 9 + 7 * k] for k, row in enumerate(prompts(4, 48))]
    together = speculate(target, drafter, rows, max_new_tokens=NEW)
    for k, row in enumerate(rows):
        alone = speculate(target, drafter, [row], max_new_tokens=NEW)
        assert together.tokens[k] == alone.tokens[0] == plain(target, [row])[0]
        assert together.accepted[k] == alone.accepted[0]


def test_wrong_boundaries_cost_passes_but_no_token(target: Any, drafter: Any) -> None:
    rows = prompts(16, 24)
    right = speculate(target, drafter, rows, max_new_tokens=NEW)
    wrong = speculate(target, drafter, rows, max_new_tokens=NEW, boundaries=(0, 1, 8))
    assert right.tokens == wrong.tokens
    assert sum(wrong.target_passes) > sum(right.target_passes)


def test_a_row_ends_with_its_end_token(target: Any, drafter: Any) -> None:
    rows = prompts(8, 32)
    newline = 10
    out = speculate(target, drafter, rows, max_new_tokens=NEW, eos_token_id=newline)
    for tokens, whole in zip(out.tokens, plain(target, rows), strict=True):
        end = whole.index(newline) + 1 if newline in whole else NEW
        assert tokens == whole[:end]


@pytest.mark.parametrize("tree", [None, Tree(3, 6)])
def test_samples_are_distributed_as_those_of_the_target(target: Any, drafter: Any, tree: Tree | None) -> None:
    """Chi-square over the most likely triples of first tokens, and everything else."""
    prompt, count, temperature = list(b"import "), 1000, 0.6
    expected = exact_triples(target, prompt, temperature, width=5)
    generator = torch.Generator().manual_seed(11)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(2):
        out = speculate(
            target,
            drafter,
            [prompt] * (count // 2),
            tree=tree,
            max_new_tokens=3,
            temperature=temperature,
            generator=generator,
        )
        for tokens in out.tokens:
            seen[tokens] = seen.get(tokens, 0) + 1
    likely = {triple: p for triple, p in expected.items() if p * count >= 8}
    assert len(likely) >= 12
    rest = 1 - sum(likely.values())
    statistic = sum((seen.get(triple, 0) - p * count) ** 2 / (p * count) for triple, p in likely.items())
    others = count - sum(seen.get(triple, 0) for triple in likely)
    statistic += (others - rest * count) ** 2 / (rest * count)
    df = len(likely)
    assert statistic < df * (1 - 2 / (9 * df) + 3.9 * math.sqrt(2 / (9 * df))) ** 3


def exact_triples(target: Any, prompt: list[int], temperature: float, width: int) -> dict[tuple[int, ...], float]:
    """The probabilities of the likely continuations of three tokens, by the target alone."""
    beams: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        rows = torch.tensor([[*prompt, *beam] for beam in beams])
        with torch.no_grad():
            p = (target(input_ids=rows, use_cache=False).logits[:, -1].double() / temperature).softmax(-1)
        best = p.topk(width)
        beams = {
            (*beam, int(token)): before * float(value)
            for k, (beam, before) in enumerate(beams.items())
            for token, value in zip(best.indices[k], best.values[k], strict=True)
        }
    return beams


def test_a_replay_counts_what_a_real_generation_accepts(target: Any, pair: Pair, drafter: Any) -> None:
    rows, steps, new = [row[: 20 + 3 * k] for k, row in enumerate(prompts(8, 48))], 3, 40
    live = speculate(target, drafter, rows, steps=steps, max_new_tokens=new)
    (recording,) = record(target, rows, pair.boundaries, max_new_tokens=new)
    counts = replay(drafter, recording, pair.boundaries, steps)
    compared = 0
    for row, accepted in enumerate(live.accepted):
        place = 0
        for count in accepted:
            if place < len(counts[row]):
                assert int(counts[row][place]) == count
                compared += 1
            place += count + 1
    assert compared > 60


@pytest.mark.parametrize(
    "numbers", [{"steps": 0}, {"max_new_tokens": 0}, {"temperature": -1.0}, {"boundaries": (2, 4)}]
)
def test_numbers_out_of_range_are_refused(target: Any, drafter: Any, numbers: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="EA805"):
        speculate(target, drafter, [[1, 2, 3]], **numbers)


def test_boundaries_out_of_range_are_refused(target: Any, drafter: Any) -> None:
    with pytest.raises(BoundaryError, match="EA001"):
        speculate(target, drafter, [[1, 2, 3]], boundaries=(2, 4, 9))
