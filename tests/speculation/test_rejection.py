"""The acceptance rules on distributions small enough to know exactly."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from eagle_adapters.speculation.proposal import Proposal
from eagle_adapters.speculation.rejection import Verdict, accept_greedy, accept_sampled

VOCAB, ROWS = 4, 3000


def tables(seed: int) -> tuple[Tensor, Tensor]:
    """p(first), and p(second | first)."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(VOCAB, generator=generator).mul(1.5).softmax(-1),
        torch.randn(VOCAB, VOCAB, generator=generator).mul(1.5).softmax(-1),
    )


def chi_square(counts: Tensor, expected: Tensor) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def critical(df: int, z: float = 3.9) -> float:
    """The quantile at about 0.99995 (Wilson and Hilferty)."""
    return df * (1 - 2 / (9 * df) + z * math.sqrt(2 / (9 * df))) ** 3


def sampled_chain(generator: torch.Generator) -> tuple[Proposal, Tensor]:
    """Two drafted tokens a row, sampled from a draft that is unlike the target."""
    first, second = tables(1)
    target_first, target_second = tables(0)
    one = torch.multinomial(first, ROWS, replacement=True, generator=generator)
    two = torch.multinomial(second[one], 1, generator=generator)[:, 0]
    tokens = torch.stack([torch.zeros_like(one), one, two], dim=1)
    q = torch.stack([torch.zeros(ROWS, VOCAB), first.expand(ROWS, -1), second[one]], dim=1)
    p = torch.stack([target_first.expand(ROWS, -1), target_second[one], torch.full((ROWS, VOCAB), 1 / VOCAB)], dim=1)
    return Proposal(tokens, torch.tensor([[-1, 0, 1]]).expand(ROWS, -1), q), p


def fixed_tree() -> tuple[Proposal, Tensor]:
    """Tokens 2 and 0 after the root, then 1 and 3 after token 2: chosen without chance."""
    target_first, target_second = tables(0)
    tokens = torch.tensor([[0, 2, 0, 1, 3]]).expand(ROWS, -1)
    uniform = torch.full((VOCAB,), 1 / VOCAB)
    p = torch.stack([target_first, target_second[2], target_second[0], uniform, uniform]).expand(ROWS, -1, -1)
    return Proposal(tokens, torch.tensor([[-1, 0, 0, 1, 1]]).expand(ROWS, -1)), p


def pairs(proposal: Proposal, verdict: Verdict, generator: torch.Generator) -> Tensor:
    """How often each pair of first tokens came; a missing second one is sampled from the target itself."""
    _, second = tables(0)
    counts = torch.zeros(VOCAB, VOCAB)
    for row, (path, following) in enumerate(zip(verdict.paths, verdict.following, strict=True)):
        out = [*(int(proposal.tokens[row, node]) for node in path), following]
        if len(out) == 1:
            out.append(int(torch.multinomial(second[out[0]], 1, generator=generator)))
        counts[out[0], out[1]] += 1
    return counts


@pytest.mark.parametrize("kind", ["chain", "tree"])
def test_samples_are_distributed_as_those_of_the_target(kind: str) -> None:
    generator = torch.Generator().manual_seed(3)
    proposal, p = sampled_chain(generator) if kind == "chain" else fixed_tree()
    counts = pairs(proposal, accept_sampled(proposal, p, generator), generator)
    first, second = tables(0)
    assert chi_square(counts, first[:, None] * second * ROWS) < critical(VOCAB * VOCAB - 1)


def test_the_test_sees_a_draft_that_is_always_accepted() -> None:
    generator = torch.Generator().manual_seed(3)
    proposal, p = sampled_chain(generator)
    following = torch.multinomial(p[:, 2], 1, generator=generator)[:, 0].tolist()
    counts = pairs(proposal, Verdict(((1, 2),) * ROWS, tuple(following)), generator)
    first, second = tables(0)
    assert chi_square(counts, first[:, None] * second * ROWS) > critical(VOCAB * VOCAB - 1)


def test_the_rate_of_acceptance_is_the_overlap_of_the_distributions() -> None:
    generator = torch.Generator().manual_seed(4)
    proposal, p = sampled_chain(generator)
    verdict = accept_sampled(proposal, p, generator)
    overlap = float(torch.minimum(tables(0)[0], tables(1)[0]).sum())
    rate = sum(len(path) > 0 for path in verdict.paths) / ROWS
    assert abs(rate - overlap) < 4 * math.sqrt(overlap * (1 - overlap) / ROWS)


def test_a_draft_equal_to_the_target_is_always_accepted() -> None:
    generator = torch.Generator().manual_seed(5)
    proposal, p = sampled_chain(generator)
    assert proposal.probabilities is not None
    same = torch.cat([proposal.probabilities[:, 1:], p[:, 2:]], dim=1)
    assert all(path == (1, 2) for path in accept_sampled(proposal, same, generator).paths)


def test_a_token_that_the_target_never_says_is_never_accepted() -> None:
    p = torch.tensor([[[0.0, 0.5, 0.5], [1 / 3] * 3]]).expand(500, -1, -1)
    proposal = Proposal(torch.tensor([[1, 0]]).expand(500, -1), torch.tensor([[-1, 0]]).expand(500, -1))
    verdict = accept_sampled(proposal, p, torch.Generator().manual_seed(0))
    assert set(verdict.paths) == {()}
    assert set(verdict.following) == {1, 2}


@settings(deadline=None)
@given(st.data())
def test_greedy_walks_the_tree_as_far_as_the_target_agrees(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 9))
    parents = [-1, *(data.draw(st.integers(0, node - 1)) for node in range(1, nodes))]
    tokens = [data.draw(st.integers(0, 3)) for _ in range(nodes)]
    choices = [data.draw(st.integers(0, 3)) for _ in range(nodes)]
    proposal = Proposal(torch.tensor([tokens]), torch.tensor([parents]))
    verdict = accept_greedy(proposal, torch.tensor([choices]))
    path = (0, *verdict.paths[0])
    for above, node in itertools.pairwise(path):
        assert parents[node] == above
        assert tokens[node] == choices[above]
    assert verdict.following[0] == choices[path[-1]]
    assert not any(parents[node] == path[-1] and tokens[node] == choices[path[-1]] for node in range(nodes))


def test_ancestors_and_depths_follow_the_parents() -> None:
    proposal = Proposal(torch.zeros(1, 5, dtype=torch.long), torch.tensor([[-1, 0, 0, 1, 3]]))
    assert proposal.depths.tolist() == [[0, 1, 1, 2, 3]]
    assert proposal.ancestors[0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]
