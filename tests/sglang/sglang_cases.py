"""Tiny targets in SGLang, what transformers says about them, and what is checked of every run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from eagle_adapters.tiny import tiny_config
from eagle_adapters.verify.compare import relative_error
from eagle_adapters.verify.lens import save_lens
from eagle_adapters.verify.reference import reference_states
from eagle_adapters.verify.served import split_states
from eagle_adapters.verify.sglang.checkpoint import save_checkpoint
from eagle_adapters.verify.sglang.session import Job, Outcome, Session
from eagle_adapters.verify.sglang.states import observed_states

HERE = Path(__file__).parent
PROMPTS = ((5, 7, 9, 11, 13, 20, 31), (3, 4, 8, 100, 200, 300, 400, 500))
NEW_TOKENS = 8
BOUNDARIES = (2, 4, 5)
"""The default boundaries of eight layers: their ids are an exact default triple in either convention."""

STOCK = {"EAGLE_ADAPTERS": "off"}
KIMI = "sglang.srt.models.kimi_k25:KimiK25ForConditionalGeneration"
NO_KIMI_HOOKS = {
    "STRIP": ",".join(
        f"{KIMI}.{name}"
        for name in (
            "set_eagle3_layers_to_capture",
            "get_embed_and_head",
            "set_embed_and_head",
            "get_input_embeddings",
            "lm_head",
        )
    )
}
"""Kimi-K2.5 as in the releases up to 0.5.9."""


@dataclass(frozen=True)
class Case:
    """A tiny target, what it generates in SGLang without speculation, and what transformers says about it.

    Attributes:
        folder: the checkpoint; drafts lie beside it.
        tokens: generated for each prompt.
        states: for each sequence boundary -> [tokens, hidden], from transformers.
        greedy: for each prompt what transformers chooses at every place.
        options: engine arguments that the class needs.
    """

    folder: Path
    tokens: list[list[int]]
    states: list[dict[int, torch.Tensor]]
    greedy: list[list[int]]
    options: dict[str, Any]

    @property
    def sequences(self) -> list[list[int]]:
        """Prompts and what follows."""
        return [[*prompt, *tokens] for prompt, tokens in zip(PROMPTS, self.tokens, strict=True)]

    def draft(
        self, name: str, ids: tuple[int, ...] | None, *, made_for: tuple[int, ...] = BOUNDARIES, **more: Any
    ) -> str:
        """A draft that is right for the boundaries `made_for`, with `ids` in its config."""
        folder = self.folder.parent / name
        if not folder.exists():
            save_lens(folder, self.sequences, self.states, made_for, ids=ids, vocabulary=1000, **more)
        return str(folder)

    def job(self, **more: Any) -> Job:
        """A run of the prompts."""
        options = {**self.options, **more.pop("options", {})}
        return Job(str(self.folder), PROMPTS, max_tokens=NEW_TOKENS, options=options, **more)

    def check_states(self, seen: Path, boundaries: tuple[int, ...] = BOUNDARIES) -> None:
        """Every state the draft was handed is that of its boundary, and of no other."""
        for prompt, states in zip(PROMPTS, self.states, strict=True):
            captured = split_states(observed_states(seen, prompt), boundaries)
            for boundary, found in captured.items():
                assert len(found) > len(prompt), "decode steps are among the positions"
                errors = {b: relative_error(found, state[: len(found)]) for b, state in states.items()}
                assert min(errors, key=errors.__getitem__) == boundary
                assert errors[boundary] < 1e-4


def config_of(name: str) -> dict[str, Any]:
    """The config of a case."""
    path = HERE / "configs" / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else tiny_config(name)


def make_case(name: str, session: Session, folder: Path) -> Case:
    config = config_of(name)
    model = save_checkpoint(config, folder)
    options = {"enable_multimodal": False} if "vision_config" in config else {}
    outcome = session.run(Job(str(folder), PROMPTS, max_tokens=NEW_TOKENS, options=options))
    assert outcome.error is None, outcome.log[-3000:]
    references = []
    for prompt, tokens in zip(PROMPTS, outcome.tokens, strict=True):
        ids = torch.tensor([[*prompt, *tokens]])
        references.append(reference_states(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, None))
    greedy = [r.logits.argmax(-1).tolist() for r in references]
    return Case(folder, outcome.tokens, [dict(r.states) for r in references], greedy, options)


def served(outcome: Outcome) -> Outcome:
    """The outcome of a run that must not have failed."""
    assert outcome.error is None, outcome.log[-3000:]
    return outcome


def failed(outcome: Outcome, *texts: str) -> None:
    """The run failed, and its log says why."""
    assert outcome.error is not None
    for text in texts:
        assert text in outcome.log, outcome.log[-3000:]
