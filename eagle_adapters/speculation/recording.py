"""The target's own text with its states at many boundaries, recorded once and used for every question after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagle_adapters.boundaries import Boundary
from eagle_adapters.speculation.drafter import Drafter, Memory
from eagle_adapters.speculation.speculate import ensure_wrapped, fill_up


@dataclass(frozen=True)
class Recording:
    """Sequences of one batch: prompts with what the target itself wrote after them.

    Attributes:
        tokens: [rows, tokens], filled up on the right.
        real: [rows, tokens], what is no filling.
        prompt_lengths: tokens of each prompt.
        temperature: with which the target wrote; 0 is greedy.
        logits: [rows, tokens, vocabulary], the target's scores for the token after each one.
        states: boundary -> [rows, tokens, hidden].
    """

    tokens: Tensor
    real: Tensor
    prompt_lengths: tuple[int, ...]
    temperature: float
    logits: Tensor
    states: Mapping[int, Tensor]

    def places(self, values: Tensor, steps: int) -> list[Tensor]:
        """The columns of `values` [rows, columns] at which a draft of `steps` tokens stays inside the written text."""
        lengths = self.real.sum(dim=1).tolist()
        return [
            values[row, prompt - 1 : max(length - 1 - steps, prompt - 1)]
            for row, (prompt, length) in enumerate(zip(self.prompt_lengths, lengths, strict=True))
        ]


@torch.no_grad()
def record(
    model: Any,
    prompts: Sequence[Sequence[int]],
    boundaries: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    batch: int = 16,
    seed: int = 0,
    eos_token_id: int | Sequence[int] | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> list[Recording]:
    """Let the target go on from every prompt, without a draft, and capture its states.

    Args:
        model: the `transformers` target.
        prompts: token ids, at least one each.
        boundaries: what to capture.
        max_new_tokens: the number of new tokens, unless the text ends before.
        temperature: 0 writes greedily.
        batch: prompts at a time.
        seed: of the sampling.
        eos_token_id: ends a text.
        on_batch: called with the prompts done and the prompts in all.
    """
    model = ensure_wrapped(model)
    ends = {eos_token_id} if isinstance(eos_token_id, int) else set(eos_token_id or ())
    out: list[Recording] = []
    for start in range(0, len(prompts), batch):
        chosen = [list(map(int, prompt)) for prompt in prompts[start : start + batch]]
        texts = _go_on(model, chosen, max_new_tokens, temperature, seed + start, ends)
        tokens, real = fill_up(texts, model.device)
        with model.eagle3_capture(boundaries) as capture:
            logits = model(input_ids=tokens, attention_mask=real.long(), use_cache=False).logits
        lengths = tuple(map(len, chosen))
        out.append(Recording(tokens, real, lengths, temperature, logits, dict(capture.steps[-1])))
        if on_batch is not None:
            on_batch(start + len(chosen), len(prompts))
    return out


def _go_on(
    model: Any, prompts: list[list[int]], max_new_tokens: int, temperature: float, seed: int, ends: set[int]
) -> list[list[int]]:
    """The prompts with what the target writes after them, by its own `generate`."""
    tokens, real = fill_up([row[::-1] for row in prompts], model.device)
    sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(seed)
        # `generate` wants prompts that end together: filled up on the left
        out = model.generate(
            tokens.flip(1),
            attention_mask=real.flip(1).long(),
            max_new_tokens=max_new_tokens,
            **({"do_sample": False} | sampling),
            eos_token_id=sorted(ends) or None,
            pad_token_id=0,
        )
    new = out[:, tokens.shape[1] :].tolist()
    return [[*prompt, *_until(ends, row)] for prompt, row in zip(prompts, new, strict=True)]


def _until(ends: set[int], tokens: list[int]) -> list[int]:
    stop = next((at + 1 for at, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:stop]


@torch.no_grad()
def replay(drafter: Drafter, recording: Recording, boundaries: Sequence[Boundary], steps: int) -> list[Tensor]:
    """How many tokens of a chain the target would accept at each place of its text; all places are drafted at once.

    Column t starts at state t with token t + 1 and sees the states up to t and its own steps. On a greedy text the
    chain is the draft's greedy one, and the counts are what a greedy generation accepts at the places that it visits.
    On a sampled text they are expectations under the rejection rule at its temperature: step j counts the overlap of
    draft and target, weighted with the chance that the tokens before it were drafted and accepted.

    Args:
        drafter: the draft.
        recording: holds the states of `boundaries`.
        boundaries: the reading to try.
        steps: length of the chains.

    Returns:
        For each row, a tensor of counts 0..steps, one for each place with `steps` known tokens after it.
    """
    tokens, temperature = recording.tokens, recording.temperature
    columns = tokens.shape[1] - 1 - steps
    if columns < 1:
        return [tokens.new_zeros(0) for _ in recording.prompt_lengths]
    device, vocabulary = tokens.device, recording.logits.shape[-1]
    causal = torch.ones(columns, columns, dtype=torch.bool, device=device).tril()
    own = torch.eye(columns, dtype=torch.bool, device=device)
    fed = drafter.combine([recording.states[b][:, :columns] for b in boundaries])
    memory, following = Memory(), tokens[:, 1 : 1 + columns]
    going = torch.ones(following.shape, dtype=torch.float64, device=device)
    count = torch.zeros_like(going)
    for step in range(steps):
        visible = torch.cat([causal, *[own] * step], dim=-1)[None]
        positions = (torch.arange(columns, device=device) + step).expand_as(following)
        out, fed = drafter(following, fed, positions, visible, memory)
        text = tokens[:, 2 + step : 2 + step + columns]
        if temperature == 0:
            following = drafter.target_ids(drafter.logits(out).argmax(dim=-1))
            going = going * (following == text)
            count = count + going
        else:
            p = (recording.logits[:, 1 + step : 1 + step + columns].float() / temperature).softmax(dim=-1)
            q = drafter.probabilities(out, temperature, vocabulary)
            count = count + going * torch.minimum(p, q).sum(dim=-1)
            ratio = q.gather(-1, text[..., None]) / p.gather(-1, text[..., None])
            going, following = going * ratio[..., 0].clamp(max=1), text
    return recording.places(count, steps)
