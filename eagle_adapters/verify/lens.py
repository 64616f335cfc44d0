"""A hand-made EAGLE-3 draft that is right exactly when the states are those of its boundaries.

The draft's one layer adds nothing, so that it proposes `head(norm(fc(states)))`. `fc` is fitted so that the states of a
position give the token two places on, and the states one boundary lower or higher give the opposite: a draft that is
handed states one layer off proposes a wrong token every time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagle_adapters.verify.draft import save_draft


def save_lens(
    folder: Path,
    sequences: Sequence[Sequence[int]],
    states: Sequence[Mapping[int, Any]],
    boundaries: Sequence[int],
    *,
    ids: Sequence[int] | None,
    vocabulary: int,
    top_level_ids: bool = False,
    latent: bool = False,
) -> None:
    """Write such a draft for the sequences it will meet.

    Args:
        folder: where the draft goes.
        sequences: token ids, prompt and what the target generates after it.
        states: for each sequence boundary -> [tokens, hidden], all boundaries of the target.
        boundaries: the boundaries that the draft is made for.
        ids: the layer ids to write into its config, or None.
        vocabulary: rows of the target's embedding.
        top_level_ids: write the ids at top level instead of into `eagle_config`.
        latent: latent attention (MLA) in the draft.
    """
    import torch

    last = max(states[0])
    width = states[0][0].shape[-1]
    generator = torch.Generator().manual_seed(5)
    head = torch.nn.functional.normalize(torch.randn(vocabulary, width, generator=generator))
    features, wanted = [], []
    for shift, sign in ((0, 1.0), (-1, -1.0), (1, -1.0)):
        places = [b + shift for b in boundaries]
        if min(places) < 0 or max(places) > last:
            continue
        for tokens, own in zip(sequences, states, strict=True):
            features.append(torch.cat([own[b] for b in places], dim=-1)[: len(tokens) - 2].float())
            wanted.append(sign * head[torch.tensor(list(tokens)[2:])][: len(features[-1])])
    solution = torch.linalg.lstsq(torch.cat(features).double(), torch.cat(wanted).double(), driver="gelsd").solution
    fc = solution.T.float().contiguous()
    save_draft(folder, fc=fc, head=head, ids=ids, top_level_ids=top_level_ids, latent=latent)
