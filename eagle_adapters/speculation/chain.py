"""Draft a chain: one token after the other, greedily or by chance."""

from __future__ import annotations

import torch
from torch import Tensor

from eagle_adapters.speculation.proposal import Proposal
from eagle_adapters.speculation.state import DraftState


def draft_chain(
    draft: DraftState,
    sure: Tensor,
    steps: int,
    *,
    temperature: float,
    vocabulary: int,
    generator: torch.Generator | None,
) -> Proposal:
    """`steps` tokens after the last sure one of every row.

    Args:
        draft: has absorbed everything before.
        sure: [batch], the last sure token.
        steps: how many tokens to draft, at least 1.
        temperature: 0 drafts the most likely token, else tokens are sampled.
        vocabulary: of the target.
        generator: of the chance.
    """
    begin, rows = draft.memory.slots, len(sure)
    out, fed = draft.out, draft.fed
    tokens, probabilities = [sure], []
    for step in range(1, steps + 1):
        if temperature == 0:
            token = draft.drafter.target_ids(draft.drafter.logits(out).argmax(dim=-1))
        else:
            probabilities.append(draft.drafter.probabilities(out, temperature, vocabulary))
            token = torch.multinomial(probabilities[-1], 1, generator=generator)[:, 0]
        tokens.append(token)
        if step < steps:
            among = torch.ones(rows, 1, step, dtype=torch.bool, device=sure.device)
            out, fed = (x[:, 0] for x in draft.ahead(token[:, None], fed[:, None], step, among))
    draft.memory.crop(begin)
    parents = torch.arange(-1, steps, device=sure.device).expand(rows, -1)
    if not probabilities:
        return Proposal(torch.stack(tokens, dim=1), parents)
    # node 0 was not drafted
    sampled = torch.stack([torch.zeros_like(probabilities[0]), *probabilities], dim=1)
    return Proposal(torch.stack(tokens, dim=1), parents, sampled)
