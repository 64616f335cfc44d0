"""Generate with a draft: the same tokens as without it, in fewer passes of the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagle_adapters.boundaries import Boundary, check_boundaries, read_ids
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.drafts.spec import DraftSpec
from eagle_adapters.errors import UsageError
from eagle_adapters.speculation.chain import draft_chain
from eagle_adapters.speculation.drafter import Drafter, load_drafter
from eagle_adapters.speculation.proposal import Proposal
from eagle_adapters.speculation.rejection import Verdict, accept_greedy, accept_sampled
from eagle_adapters.speculation.state import DraftState, TargetState
from eagle_adapters.speculation.tree import Tree, draft_tree


@dataclass(frozen=True, slots=True)
class Speculation:
    """What a generation with a draft gave.

    Attributes:
        tokens: the new tokens of each row.
        accepted: for each row, how many drafted tokens each verifying pass accepted.
        steps: how deep the draft went in each round.
    """

    tokens: tuple[tuple[int, ...], ...]
    accepted: tuple[tuple[int, ...], ...]
    steps: int

    @property
    def target_passes(self) -> tuple[int, ...]:
        """Passes of the target for each row, the one over the prompt included; plain decoding takes one a token."""
        return tuple(1 + len(passes) for passes in self.accepted)


@torch.no_grad()
def speculate(
    model: Any,
    draft: Drafter | DraftSpec | str | Path,
    input_ids: Tensor | Sequence[Sequence[int]],
    *,
    steps: int = 3,
    tree: Tree | None = None,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    boundaries: Sequence[int] | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    on_tokens: Callable[[int], None] | None = None,
) -> Speculation:
    """Decode with the help of an EAGLE-3 draft; losslessly: greedy tokens are the target's own, samples distributed so.

    Args:
        model: a `transformers` causal model with full attention; it is wrapped if it is not yet.
        draft: the draft, or its folder.
        input_ids: the prompts: a tensor [batch, tokens], or lists that may differ in length.
        steps: how many tokens deep the draft goes in each round.
        tree: draft a tree of this shape instead of a chain.
        max_new_tokens: the number of new tokens a row, unless it ends before.
        temperature: 0 decodes greedily, else both draft and target sample with it.
        generator: of the chance, on the device of the model.
        boundaries: what to capture; default as the draft's ids are read.
        eos_token_id: ends a row; it is the last of its tokens.
        inputs: further inputs of the first pass, such as pixels.
        on_tokens: called after each round with the number of rounds so far.

    Raises:
        DataError: see `load_drafter`.
        BoundaryError: EA005, the meaning of the draft's ids is undecided and no boundaries are given; EA001, EA002.
        UsageError: EA804, the model cannot take back drafted tokens; EA805, numbers out of range.
    """
    prompts = [list(map(int, row)) for row in input_ids]
    _check_numbers(prompts, steps, max_new_tokens, temperature)
    model = ensure_wrapped(model)
    drafter = draft if isinstance(draft, Drafter) else load_drafter(draft, model)
    depth = num_layers(model)
    chosen = read_ids(drafter.spec.ids, depth).require() if boundaries is None else check_boundaries(boundaries, depth)
    _check_count(chosen, drafter.spec)
    ends = {eos_token_id} if isinstance(eos_token_id, int) else set(eos_token_id or ())
    rows = _Rows(len(prompts), max_new_tokens, ends)
    longest = max(map(len, prompts))
    target = TargetState(model, chosen, longest + max_new_tokens + steps + 1)
    side = DraftState(drafter)
    device = model.device

    def pick(logits: Tensor) -> Tensor:
        if temperature == 0:
            return logits.argmax(dim=-1)
        return torch.multinomial((logits.float() / temperature).softmax(dim=-1), 1, generator=generator)[:, 0]

    tokens, real = fill_up(prompts, device)
    logits, states = target.prefill(tokens, real, inputs or {})
    at, last = torch.arange(len(prompts), device=device), real.sum(dim=1) - 1
    sure = pick(logits[at, last])
    rows.add([[token] for token in sure.tolist()])
    shifted = torch.cat([tokens[:, 1:], tokens[:, :1]], dim=1)
    shifted[at, last] = sure
    side.absorb(shifted, states, torch.arange(longest, device=device).expand_as(tokens), real)
    rounds = 0
    while not rows.finished:
        if tree is None:
            vocabulary = logits.shape[-1]
            proposal = draft_chain(
                side, sure, steps, temperature=temperature, vocabulary=vocabulary, generator=generator
            )
        else:
            proposal = draft_tree(side, sure, steps, tree)
        positions = side.position[:, None] + 1 + proposal.depths
        logits, states = target.verify(proposal.tokens, positions, proposal.ancestors)
        verdict = _judge(proposal, logits, temperature, generator)
        rows.add(_gains(proposal, verdict), verdict)
        sure = torch.tensor(verdict.following, device=device)
        _advance(target, side, proposal, verdict, states)
        rounds += 1
        if on_tokens is not None:
            on_tokens(rounds)
    return Speculation(rows.tokens(), rows.accepted(), steps)


def ensure_wrapped(model: Any) -> Any:
    """The model with `eagle3_capture`."""
    from eagle_adapters.wrapping import wrap

    return model if hasattr(model, "eagle3_capture") else wrap(model)


def num_layers(model: Any) -> int:
    """N of a live target."""
    return int(model.config.get_text_config(decoder=True).num_hidden_layers)


def fill_up(rows: Sequence[Sequence[int]], device: Any) -> tuple[Tensor, Tensor]:
    """Rows as one tensor [rows, longest], filled up with zeros on the right, and what is no filling."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return tokens, torch.arange(longest, device=device) < lengths[:, None]


class _Rows:
    """The new tokens of every row, until each has enough of them or has ended."""

    def __init__(self, count: int, limit: int, ends: set[int]) -> None:
        self._tokens: list[list[int]] = [[] for _ in range(count)]
        self._accepted: list[list[int]] = [[] for _ in range(count)]
        self._done = [False] * count
        self._limit, self._ends = limit, ends

    def add(self, gains: Sequence[Sequence[int]], verdict: Verdict | None = None) -> None:
        for row, gain in enumerate(gains):
            if self._done[row]:
                continue
            if verdict is not None:
                self._accepted[row].append(len(verdict.paths[row]))
            for token in gain:
                self._tokens[row].append(token)
                if token in self._ends or len(self._tokens[row]) == self._limit:
                    self._done[row] = True
                    break

    @property
    def finished(self) -> bool:
        return all(self._done)

    def tokens(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(tuple, self._tokens))

    def accepted(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(tuple, self._accepted))


def _judge(proposal: Proposal, logits: Tensor, temperature: float, generator: torch.Generator | None) -> Verdict:
    if temperature == 0:
        return accept_greedy(proposal, logits.argmax(dim=-1))
    return accept_sampled(proposal, (logits.float() / temperature).softmax(dim=-1), generator)


def _gains(proposal: Proposal, verdict: Verdict) -> list[list[int]]:
    tokens = proposal.tokens.tolist()
    pairs = zip(verdict.paths, verdict.following, strict=True)
    return [[*(tokens[row][node] for node in path), following] for row, (path, following) in enumerate(pairs)]


def _advance(
    target: TargetState, side: DraftState, proposal: Proposal, verdict: Verdict, states: Sequence[Tensor]
) -> None:
    """Keep the accepted nodes, and let the draft read the target's states at them."""
    device = proposal.tokens.device
    nodes, real = fill_up([(0, *path) for path in verdict.paths], device)
    kept = torch.zeros_like(proposal.tokens, dtype=torch.bool)
    # the filling is node 0, which is kept anyway
    target.keep(kept.scatter_(1, nodes, True))
    following, _ = fill_up(_gains(proposal, verdict), device)
    at = torch.arange(len(nodes), device=device)[:, None]
    positions = side.position[:, None] + 1 + torch.arange(nodes.shape[1], device=device)
    side.absorb(following, [state[at, nodes] for state in states], positions, real)


def _check_numbers(prompts: Sequence[Sequence[int]], steps: int, max_new_tokens: int, temperature: float) -> None:
    if steps < 1 or max_new_tokens < 1 or temperature < 0 or not prompts or not all(prompts):
        found = f"{len(prompts)} prompts, steps {steps}, max_new_tokens {max_new_tokens}, temperature {temperature}"
        raise UsageError(
            Diagnostic(
                "EA805",
                "a number is out of range",
                expected="prompts that are not empty, steps and max_new_tokens from 1, temperature from 0",
                found=found,
            )
        )


def _check_count(boundaries: Sequence[Boundary], spec: DraftSpec) -> None:
    if len(boundaries) != spec.num_aux:
        raise UsageError(
            Diagnostic(
                "EA805",
                "the draft takes another number of states",
                expected=f"{spec.num_aux} boundaries",
                found=str([int(b) for b in boundaries]),
            )
        )
