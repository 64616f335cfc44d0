"""What a draft proposes in one round: a tree of tokens, of which a chain is the plainest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Proposal:
    """A tree of tokens for every row of a batch.

    Attributes:
        tokens: [batch, nodes]; node 0 is the last token that is already sure.
        parents: [batch, nodes]; always smaller than the node's own index, -1 for node 0.
        probabilities: [batch, nodes, vocabulary], what each token was sampled from; None when the draft chose its
            tokens without chance.
    """

    tokens: Tensor
    parents: Tensor
    probabilities: Tensor | None = None

    @cached_property
    def ancestors(self) -> Tensor:
        """[batch, nodes, nodes]: whether the second node is the first one or lies above it."""
        nodes = self.tokens.shape[1]
        out = torch.eye(nodes, dtype=torch.bool, device=self.tokens.device).repeat(len(self.tokens), 1, 1)
        rows = torch.arange(len(self.tokens), device=self.tokens.device)
        for node in range(1, nodes):
            out[:, node] |= out[rows, self.parents[:, node]]
        return out

    @property
    def depths(self) -> Tensor:
        """[batch, nodes]: how many tokens lie between node 0 and each node, itself included."""
        return self.ancestors.sum(dim=-1) - 1

    def children(self, row: int) -> list[list[int]]:
        """The children of every node of one row, in order of index."""
        out: list[list[int]] = [[] for _ in range(self.tokens.shape[1])]
        for node, parent in enumerate(self.parents[row].tolist()):
            if parent >= 0:
                out[parent].append(node)
        return out
