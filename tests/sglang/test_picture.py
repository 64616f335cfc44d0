"""Kimi-K2.5 with a picture in the prompt: its own hooks and none, in process and over HTTP, by SGLang's own code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from sglang_cases import BOUNDARIES, NEW_TOKENS, NO_KIMI_HOOKS, STOCK, failed, served

from eagle_adapters.tiny import image_inputs, picture, tiny_config
from eagle_adapters.verify.compare import Reference, compare
from eagle_adapters.verify.lens import save_lens
from eagle_adapters.verify.pictures import fold_placeholders, save_picture
from eagle_adapters.verify.reference import reference_states
from eagle_adapters.verify.served import split_states
from eagle_adapters.verify.sglang.checkpoint import save_checkpoint
from eagle_adapters.verify.sglang.picture import OPTIONS, add_processor
from eagle_adapters.verify.sglang.session import Job
from eagle_adapters.verify.sglang.states import observed_states


@dataclass(frozen=True)
class Shown:
    """A target and a prompt with a picture.

    Attributes:
        folder: the checkpoint, and drafts with ids that are right and one too low.
        prompt: token ids, one for each token that the picture stands for.
        job: what every run of it has in common.
        tokens: generated without speculation.
        reference: what transformers says about prompt and tokens.
    """

    folder: Path
    prompt: list[int]
    job: dict
    tokens: list[int]
    reference: Reference

    def run(self, session, **more):
        return session.run(Job(str(self.folder / "target"), max_tokens=NEW_TOKENS, **self.job, **more))


@pytest.fixture(scope="module")
def shown(session, tmp_path_factory) -> Shown:
    folder = tmp_path_factory.mktemp("picture")
    model = save_checkpoint(tiny_config("kimi_k25"), folder / "target")
    add_processor(folder / "target")
    inputs = image_inputs(model)
    prompt, token = inputs["input_ids"][0].tolist(), model.config.image_token_id
    job = {
        "prompts": [fold_placeholders(prompt, token)],
        "images": [str(save_picture(picture(), folder / "picture.png"))],
        "options": OPTIONS,
    }
    outcome = served(session.run(Job(str(folder / "target"), max_tokens=NEW_TOKENS, **job)))
    whole = torch.tensor([[*prompt, *outcome.tokens[0]]])
    placed = {**inputs, "input_ids": whole, "attention_mask": torch.ones_like(whole)}
    placed |= {name: (whole == token).long() for name in ("mm_token_type_ids", "token_type_ids") if name in inputs}
    reference = reference_states(model, placed, token)
    for name, ids in (("right", BOUNDARIES), ("lower", (1, 3, 4))):
        save_lens(folder / name, whole.tolist(), [reference.states], BOUNDARIES, ids=ids, vocabulary=1000)
    return Shown(folder, prompt, job, outcome.tokens[0], reference)


def test_tokens_without_speculation_are_those_of_transformers(shown):
    greedy = shown.reference.logits.argmax(-1).tolist()
    assert shown.tokens == greedy[len(shown.prompt) - 1 : -1]


def test_stock_refuses_it_without_hooks(shown, session):
    outcome = shown.run(session, draft=str(shown.folder / "right"), environment={**NO_KIMI_HOOKS, **STOCK})
    failed(outcome, "KimiK25ForConditionalGeneration")


@pytest.mark.parametrize(
    ("environment", "more"),
    [({}, {}), (NO_KIMI_HOOKS, {}), (NO_KIMI_HOOKS, {"http": True}), ({}, {"topk": 2})],
    ids=["own-hooks", "no-hooks", "no-hooks-http", "tree"],
)
def test_the_states_are_right_where_the_picture_is(shown, session, tmp_path, environment, more):
    draft = str(shown.folder / "right")
    outcome = served(shown.run(session, draft=draft, environment=environment, observe=str(tmp_path), **more))
    assert outcome.tokens == [shown.tokens]
    assert outcome.accepted >= 0.8 * outcome.steps
    captured = split_states(observed_states(tmp_path, shown.prompt), BOUNDARIES)
    assert min(map(len, captured.values())) > len(shown.prompt), "decode steps are among the positions"
    matches, faults = compare(captured, shown.reference, BOUNDARIES, 1e-4)
    assert faults == []
    assert [(m.boundary, m.place) for m in matches] == [(b, place) for b in BOUNDARIES for place in ("text", "image")]
    assert all(m.passed and m.positions for m in matches)


def test_shifted_boundaries_are_not_accepted(shown, session):
    declared = {"EAGLE_ADAPTERS_CONVENTION": "boundary"}
    outcome = served(shown.run(session, draft=str(shown.folder / "lower"), environment=declared))
    assert outcome.tokens == [shown.tokens]
    assert outcome.accepted <= 0.2 * outcome.steps
