"""What a draft is worth on prompts: acceptance length, rates by position, tokens per pass of the target."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import UsageError

RESAMPLES = 2000
"""Bootstrap resamples; their noise is far below the width of the intervals they give."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % confidence interval, by a bootstrap over prompts."""

    mean: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """The JSON form."""
        return {"mean": self.mean, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The acceptance of a draft.

    Attributes:
        steps: tokens drafted in each round.
        prompts: how many prompts were measured.
        rounds: rounds of drafting in all.
        length: tokens that a round gives: the accepted ones and the target's own.
        rates: for each drafted position, how often it and all before it were accepted.
        new_tokens: tokens generated in all.
        target_passes: passes of the target in all, those over the prompts included.
    """

    steps: int
    prompts: int
    rounds: int
    length: Interval
    rates: tuple[float, ...]
    new_tokens: int
    target_passes: int

    @property
    def tokens_per_pass(self) -> float:
        """New tokens for each pass of the target; 1 without a draft."""
        return self.new_tokens / self.target_passes

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "steps": self.steps,
            "prompts": self.prompts,
            "rounds": self.rounds,
            "acceptance_length": self.length.as_dict(),
            "rates": list(self.rates),
            "new_tokens": self.new_tokens,
            "target_passes": self.target_passes,
            "tokens_per_pass": self.tokens_per_pass,
        }


def measure(
    model: Any,
    draft: Any,
    prompts: Sequence[Sequence[int]],
    *,
    steps: int = 3,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    boundaries: Sequence[int] | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    batch: int = 16,
    seed: int = 0,
    on_batch: Callable[[int, int], None] | None = None,
) -> Acceptance:
    """Decode every prompt with the draft and count.

    Args:
        model: the `transformers` target.
        draft: a `Drafter`, or a draft's folder.
        prompts: token ids.
        steps: tokens drafted in each round.
        max_new_tokens: new tokens a prompt.
        temperature: 0 decodes greedily.
        boundaries: what to capture; default as the draft's ids are read.
        eos_token_id: ends a text.
        batch: prompts at a time.
        seed: of sampling and of the bootstrap.
        on_batch: called with the prompts done and the prompts in all.

    Raises:
        DataError, BoundaryError, UsageError: as `speculate`; UsageError EA806, too little was generated to measure.
    """
    import torch

    from eagle_adapters.speculation.drafter import Drafter, load_drafter
    from eagle_adapters.speculation.speculate import ensure_wrapped, speculate

    model = ensure_wrapped(model)
    drafter = draft if isinstance(draft, Drafter) else load_drafter(draft, model)
    generator = torch.Generator(device=model.device).manual_seed(seed)
    accepted: list[tuple[int, ...]] = []
    new_tokens = passes = 0
    for start in range(0, len(prompts), batch):
        part = prompts[start : start + batch]
        out = speculate(
            model,
            drafter,
            part,
            steps=steps,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            generator=generator,
            boundaries=boundaries,
            eos_token_id=eos_token_id,
        )
        accepted += out.accepted
        new_tokens += sum(map(len, out.tokens))
        passes += sum(out.target_passes)
        if on_batch is not None:
            on_batch(start + len(part), len(prompts))
    return summarise(accepted, steps, new_tokens, passes, seed)


def summarise(
    accepted: Sequence[Sequence[int]], steps: int, new_tokens: int, target_passes: int, seed: int = 0
) -> Acceptance:
    """The acceptance from the counts of every round of every prompt.

    Raises:
        UsageError: EA806, there is no round in them.
    """
    counts = [count for row in accepted for count in row]
    if not counts:
        raise UsageError(
            Diagnostic(
                "EA806",
                "nothing was drafted, so there is no acceptance",
                expected="at least one prompt with more than one new token",
                found=f"{len(accepted)} prompts, {new_tokens} new tokens",
                next_step="give more prompts, or raise the number of new tokens",
            )
        )
    rates = tuple(sum(count > position for count in counts) / len(counts) for position in range(steps))
    sums = [(sum(row) + len(row), len(row)) for row in accepted if row]
    return Acceptance(steps, len(accepted), len(counts), bootstrap(sums, seed), rates, new_tokens, target_passes)


def bootstrap(sums: Sequence[tuple[float, float]], seed: int = 0, level: float = 0.95) -> Interval:
    """The ratio of two sums over prompts with its interval: prompts are drawn again with replacement.

    Args:
        sums: for each prompt, numerator and denominator.
        seed: of the draws.
        level: of confidence.
    """
    chance = random.Random(seed)
    ratios = sorted(_ratio(chance.choices(sums, k=len(sums))) for _ in range(RESAMPLES))
    cut = (1 - level) / 2
    low, high = ratios[int(cut * RESAMPLES)], ratios[min(int((1 - cut) * RESAMPLES), RESAMPLES - 1)]
    return Interval(_ratio(sums), low, high)


def _ratio(sums: Sequence[tuple[float, float]]) -> float:
    return sum(top for top, _ in sums) / sum(bottom for _, bottom in sums)
