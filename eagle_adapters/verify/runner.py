"""What an engine supplies to be verified: a `Runner` that generates from a checkpoint and gives what it captured."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from eagle_adapters.contract import Engine
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import ContractError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt, batch 1.

    Attributes:
        name: `text` or `image`.
        inputs: the keyword arguments of a `transformers` forward: input_ids [1, tokens], and the picture's tensors.
        picture: the picture itself, [3, H, W] in 0..1, for engines that lay it out themselves; None for text.
    """

    name: str
    inputs: Mapping[str, Any]
    picture: Tensor | None = None

    @property
    def token_ids(self) -> list[int]:
        """The prompt's token ids, image placeholders included."""
        ids: list[int] = self.inputs["input_ids"][0].tolist()
        return ids


@dataclass(frozen=True, slots=True)
class Captured:
    """What an engine captured for one prompt while it generated.

    Attributes:
        prompt: the prompt's name.
        token_ids: the prompt's ids and the generated ones.
        states: boundary -> [positions, hidden], from position 0 on, at most one position for each token.
    """

    prompt: str
    token_ids: Sequence[int]
    states: Mapping[int, Tensor]


class Runner(Protocol):
    """One engine under test. It loads a checkpoint, adapts the target the way a user would, and generates greedily.

    Attributes:
        engine: its name.
    """

    engine: str

    def version(self) -> str:
        """The engine's version."""

    def takes_pictures(self, model_type: str) -> bool:
        """Whether it can give a target of this `model_type` a `Prompt` with a picture."""

    def remarks(self) -> Sequence[Diagnostic]:
        """What a reader of the evidence has to know about how the engine is run: notes.

        Raises:
            AdaptationError: EA614, EA615, it cannot be run here.
        """

    def run(
        self, checkpoint: Path, prompts: Sequence[Prompt], boundaries: Sequence[int], max_new_tokens: int
    ) -> Sequence[Captured]:
        """Generate from every prompt in float32 and give the states at `boundaries`, one `Captured` for each prompt.

        Args:
            checkpoint: a folder as `save_pretrained` writes it; an engine that needs other fields makes its own copy.
            prompts: what to generate from.
            boundaries: what to capture, ascending.
            max_new_tokens: how many tokens to generate; the last one has no state yet.
        """


def runner_for(engine: str) -> Runner:
    """The runner of an engine.

    Raises:
        ContractError: EA306, there is no such engine.
    """
    if engine not in set(Engine):
        raise ContractError(
            Diagnostic("EA306", f"there is no engine {engine!r}", expected=", ".join(Engine), found=repr(engine))
        )
    found: Runner = importlib.import_module(f"eagle_adapters.verify.{engine}").RUNNER
    return found
