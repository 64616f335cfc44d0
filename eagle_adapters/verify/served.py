"""What the runners of serving engines share: a copy of the checkpoint, a draft, the states that reached the draft."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.verify.runner import Captured, Prompt

SessionT = TypeVar("SessionT")


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine is given.

    Attributes:
        target: folder of the target, in the engine's own dialect.
        draft: folder of a random draft.
        seen: empty folder for what the draft is handed.
        config: the target's config.
    """

    target: Path
    draft: Path
    seen: Path
    config: Mapping[str, Any]


class ServedRunner(ABC, Generic[SessionT]):
    """See `eagle_adapters.verify.runner.Runner`: a stock engine in a process of its own, adapted by the plug-in."""

    engine: str
    pictures: frozenset[str] = frozenset()
    """The `model_type`s whose targets the engine can be given a picture with."""

    @abstractmethod
    def version(self) -> str:
        """The engine's version."""

    def takes_pictures(self, model_type: str) -> bool:
        """Whether `serve` knows how to hand a target of this `model_type` a picture."""
        return model_type in self.pictures

    @abstractmethod
    def start(self) -> AbstractContextManager[SessionT]:
        """A process that runs engines."""

    @abstractmethod
    def translate(self, folder: Path) -> None:
        """Rewrite a checkpoint as `save_pretrained` wrote it into the words that the engine reads, in place."""

    @abstractmethod
    def serve(self, session: SessionT, given: Served, prompt: Prompt, max_new_tokens: int) -> tuple[list[int], Any]:
        """The prompt's ids with the generated ones, and position -> states [K * hidden] as the draft was handed them.

        Raises:
            AdaptationError: EA612, the engine failed; its own error is in `found`.
        """

    def remarks(self) -> Sequence[Diagnostic]:
        """None, unless an engine has some.

        Raises:
            AdaptationError: EA614, the engine is not installed.
        """
        if find_spec(self.engine) is None:
            raise AdaptationError(
                Diagnostic(
                    "EA614",
                    f"{self.engine} is not installed in the environment of this command",
                    expected=f"the package {self.engine} beside eagle-adapters",
                    found=sys.prefix,
                    next_step=f"pip install 'eagle-adapters[{self.engine}]', or run the engine's environment's command",
                )
            )
        return ()

    def run(
        self, checkpoint: Path, prompts: Sequence[Prompt], boundaries: Sequence[int], max_new_tokens: int
    ) -> Sequence[Captured]:
        """Serve every prompt with a random draft at `boundaries`, and give the states that reached that draft.

        Raises:
            AdaptationError: EA612, the engine failed; its own error is in `found`.
        """
        with tempfile.TemporaryDirectory(prefix="eagle-adapters-") as scratch, self.start() as session:
            folder = Path(scratch)
            shutil.copytree(checkpoint, folder / "target")
            self.translate(folder / "target")
            config = json.loads((folder / "target" / "config.json").read_text("utf-8"))
            _save_random_draft(folder / "draft", config, boundaries)
            captured = []
            for prompt in prompts:
                given = Served(folder / "target", folder / "draft", folder / f"seen-{prompt.name}", config)
                given.seen.mkdir()
                try:
                    tokens, found = self.serve(session, given, prompt, max_new_tokens)
                except ChildProcessError as error:
                    dead = Diagnostic("EA612", f"the process that {self.engine} runs in ended", found=str(error))
                    raise AdaptationError(dead) from error
                captured.append(Captured(prompt.name, tokens, split_states(found, boundaries)))
            return captured


def split_states(found: Mapping[int, Any], boundaries: Sequence[int]) -> dict[int, Any]:
    """Boundary -> [positions, hidden], for as many positions from 0 on as there are.

    Args:
        found: position -> states side by side [K * hidden].
        boundaries: what the K states are of.
    """
    import torch

    rows: list[Any] = []
    while len(rows) in found:
        rows.append(found[len(rows)])
    parts = torch.stack(rows).float().chunk(len(boundaries), dim=-1)
    return dict(zip(boundaries, parts, strict=True))


def _save_random_draft(folder: Path, config: Mapping[str, Any], boundaries: Sequence[int]) -> None:
    import torch

    from eagle_adapters.verify.draft import save_draft

    text = config.get("text_config", config)
    width = text.get("hidden_size") or text["n_embd"]
    vocabulary = text.get("vocab_size") or config["vocab_size"]
    generator = torch.Generator().manual_seed(0)
    fc = torch.randn(width, width * len(boundaries), generator=generator) * 0.02
    save_draft(folder, fc=fc, head=torch.randn(vocabulary, width, generator=generator), ids=boundaries)
