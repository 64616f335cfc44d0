"""Which drafted tokens are accepted. Whatever the draft says, what comes out is what the target alone would say."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eagle_adapters.speculation.proposal import Proposal


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one round gives each row.

    Attributes:
        paths: the accepted nodes of each row from the top, without node 0.
        following: the target's own token after them.
    """

    paths: tuple[tuple[int, ...], ...]
    following: tuple[int, ...]


def accept_greedy(proposal: Proposal, choices: Tensor) -> Verdict:
    """Accept what the target would have chosen itself.

    Args:
        proposal: what was drafted.
        choices: [batch, nodes], the target's most likely token after each node.
    """
    paths, following = [], []
    for row, (tokens, chosen) in enumerate(zip(proposal.tokens.tolist(), choices.tolist(), strict=True)):
        children, node, path = proposal.children(row), 0, []
        while (next_node := next((c for c in children[node] if tokens[c] == chosen[node]), None)) is not None:
            node = next_node
            path.append(node)
        paths.append(tuple(path))
        following.append(chosen[node])
    return Verdict(tuple(paths), tuple(following))


def accept_sampled(proposal: Proposal, probabilities: Tensor, generator: torch.Generator | None) -> Verdict:
    """Accept by chance, so that the tokens are distributed as the target's own samples.

    A token x drafted with probability q(x) is accepted with min(1, p(x) / q(x)); after a rejection the target's
    distribution goes on as what is left, max(p - q, 0). A token that the draft chose without chance has q(x) = 1.
    (arXiv 2211.17192; for several children one after the other, arXiv 2305.09781.)

    Args:
        proposal: what was drafted.
        probabilities: [batch, nodes, vocabulary], the target's distribution after each node.
        generator: of the chance.
    """
    paths, following = [], []
    for row, tokens in enumerate(proposal.tokens.tolist()):
        children, node, path = proposal.children(row), 0, []
        left, candidates = probabilities[row, 0], list(children[0])
        while candidates:
            child = candidates.pop(0)
            token = tokens[child]
            drafted = _drafted(proposal, row, child, left)
            chance = float(torch.rand((), generator=generator, device=left.device))
            if chance * float(drafted[token]) < float(left[token]):
                node = child
                path.append(node)
                left, candidates = probabilities[row, node], list(children[node])
            else:
                rest = (left - drafted).clamp_min(0)
                # p = q leaves nothing, and a rejection is then a matter of rounding
                left = rest / rest.sum() if float(rest.sum()) > 0 else left
        paths.append(tuple(path))
        following.append(int(torch.multinomial(left, 1, generator=generator)))
    return Verdict(tuple(paths), tuple(following))


def _drafted(proposal: Proposal, row: int, child: int, like: Tensor) -> Tensor:
    if proposal.probabilities is not None:
        return proposal.probabilities[row, child]
    sure = torch.zeros_like(like)
    sure[proposal.tokens[row, child]] = 1
    return sure
