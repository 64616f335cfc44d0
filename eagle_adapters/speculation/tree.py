"""Draft a tree: the best continuations of the best continuations, cut to a size, as EAGLE-2 does."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import UsageError
from eagle_adapters.speculation.proposal import Proposal
from eagle_adapters.speculation.state import DraftState


@dataclass(frozen=True, slots=True)
class Tree:
    """The shape of drafted trees; SGLang calls the fields `eagle_topk` and `num_draft_tokens - 1`.

    Attributes:
        width: how many nodes of a level are continued, and with how many tokens each.
        size: how many drafted tokens are verified: the most likely ones of the tree.

    Raises:
        UsageError: EA805, one of them is less than 1.
    """

    width: int
    size: int

    def __post_init__(self) -> None:
        if self.width < 1 or self.size < 1:
            found = f"width {self.width}, size {self.size}"
            raise UsageError(Diagnostic("EA805", "a tree has no room for a token", expected="1 or more", found=found))


def draft_tree(draft: DraftState, sure: Tensor, steps: int, tree: Tree) -> Proposal:
    """The `tree.size` most likely drafted tokens, up to `steps` levels below the last sure token of every row."""
    begin, rows, width = draft.memory.slots, len(sure), min(tree.width, draft.drafter.spec.draft_vocab_size)
    device = sure.device
    at = torch.arange(rows, device=device)[:, None]
    score, token = _best(draft, draft.out[:, None], width)
    score, token = score[:, 0], token[:, 0]
    fed = draft.fed[:, None].expand(-1, width, -1)
    # Every candidate ever scored: its token, the log probability of its whole path, and its parent in this same list.
    scores, tokens = [score], [token]
    parents = [torch.full((rows, width), -1, device=device)]
    frontier = torch.arange(width, device=device).expand(rows, -1)
    among = torch.zeros(rows, width, 0, dtype=torch.bool, device=device)
    for step in range(1, steps):
        own = torch.eye(width, dtype=torch.bool, device=device).expand(rows, -1, -1)
        among = torch.cat([among, own], dim=-1)
        out, fed = draft.ahead(token, fed, step, among)
        gain, following = _best(draft, out, width)
        score, following = (score[..., None] + gain).flatten(1), following.flatten(1)
        above = frontier.repeat_interleave(width, dim=1)
        first = sum(t.shape[1] for t in tokens)
        scores.append(score)
        tokens.append(following)
        parents.append(above)
        kept = score.topk(width, dim=1).indices
        score, token, frontier = score[at, kept], following[at, kept], first + kept
        fed, among = fed[at, kept // width], among[at, kept // width]
    draft.memory.crop(begin)
    return _cut(sure, torch.cat(tokens, dim=1), torch.cat(scores, dim=1), torch.cat(parents, dim=1), tree.size)


def _best(draft: DraftState, out: Tensor, width: int) -> tuple[Tensor, Tensor]:
    likely = draft.drafter.logits(out).float().log_softmax(dim=-1).topk(width, dim=-1)
    return likely.values, draft.drafter.target_ids(likely.indices)


def _cut(sure: Tensor, tokens: Tensor, scores: Tensor, parents: Tensor, size: int) -> Proposal:
    """The `size` best candidates. A parent is never less likely than its child and stands before it: it is kept too."""
    size = min(size, tokens.shape[1])
    kept = scores.sort(dim=1, descending=True, stable=True).indices[:, :size].sort(dim=1).values
    # new index of every kept candidate; node 0 is the sure token, which -1 points to
    index = torch.zeros(len(sure), tokens.shape[1] + 1, dtype=torch.long, device=sure.device)
    index.scatter_(1, kept, torch.arange(1, size + 1, device=sure.device).expand(len(sure), -1))
    above = parents.gather(1, kept)
    new_parents = index.gather(1, torch.where(above < 0, tokens.shape[1], above))
    root = torch.full((len(sure), 1), -1, device=sure.device)
    return Proposal(torch.cat([sure[:, None], tokens.gather(1, kept)], dim=1), torch.cat([root, new_parents], dim=1))
