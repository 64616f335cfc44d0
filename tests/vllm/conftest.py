"""Real vLLM, once stock and once with the plug-in: two processes for the whole suite, engines one after the other."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SHIM = Path(__file__).parent / "shim"
if str(SHIM) not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SHIM), os.environ.get("PYTHONPATH", "")]))
if "sitecustomize" not in sys.modules or not hasattr(sys.modules["sitecustomize"], "_Finder"):
    sys.path.insert(0, str(SHIM))
    sys.modules.pop("sitecustomize", None)
    __import__("sitecustomize")

import torch  # noqa: E402

from eagle_adapters.tiny import image_inputs, image_token, picture, tiny_config  # noqa: E402
from eagle_adapters.verify.compare import Reference, compare  # noqa: E402
from eagle_adapters.verify.lens import save_lens  # noqa: E402
from eagle_adapters.verify.pictures import fold_placeholders, save_picture  # noqa: E402
from eagle_adapters.verify.reference import reference_states  # noqa: E402
from eagle_adapters.verify.served import split_states  # noqa: E402
from eagle_adapters.verify.transformers import load_model  # noqa: E402
from eagle_adapters.verify.vllm.checkpoint import modalities, picture_modality, save_checkpoint  # noqa: E402
from eagle_adapters.verify.vllm.picture import add_processor  # noqa: E402
from eagle_adapters.verify.vllm.session import Job, Session  # noqa: E402
from eagle_adapters.verify.vllm.states import observed_states  # noqa: E402

BOUNDARIES = (2, 4, 5)
"""The default boundaries of eight layers: the same ids read in either convention are an exact default triple."""

NEW_TOKENS = 12


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An engine takes its time, on a busy machine many times its time on an idle one."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


@dataclass(frozen=True)
class Case:
    """A tiny target, what transformers says about it, and its drafts.

    Attributes:
        folder: the target's checkpoint; drafts lie beside it.
        tokens: the prompt and what transformers generates after it.
        reference: the states of these.
        options: engine arguments that the class needs.
        shown: entries of the job that show it a picture.
    """

    folder: Path
    tokens: list[int]
    reference: Reference
    options: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)

    def also(self, prompt: list[int]) -> Case:
        """The same target with another prompt."""
        tokens, reference = measure(load_model(self.folder), prompt)
        return Case(self.folder, tokens, reference, self.options)

    def draft(
        self,
        name: str = "draft",
        ids: tuple[int, ...] | None = BOUNDARIES,
        *,
        made_for: tuple[int, ...] = BOUNDARIES,
        **more: Any,
    ) -> Path:
        """A draft that is right for the boundaries `made_for`, with `ids` in its config."""
        folder = self.folder.parent / name
        if not folder.exists():
            vocabulary = self.reference.logits.shape[-1]
            states = [self.reference.states]
            save_lens(folder, [self.tokens], states, made_for, ids=ids, vocabulary=vocabulary, **more)
        return folder

    def shifted(self) -> Path:
        """The same draft with ids that name every boundary one lower."""
        return self.draft("shifted", tuple(b - 1 for b in BOUNDARIES), top_level_ids=True)

    def check_states(self, seen: Path, boundaries: tuple[int, ...] = BOUNDARIES, **which: int) -> None:
        """Every state that the draft was handed, in `which` rank and request, is that of its boundary and no other."""
        observed = observed_states(seen, self.tokens, **which)
        assert len(observed) >= len(self.tokens) - 2
        _, faults = compare(split_states(observed, boundaries), self.reference, boundaries, 1e-4)
        assert not faults, faults

    def job(self, draft: Path | None = None, **more: Any) -> Job:
        """A run of the case's prompt."""
        options = {**self.options, **more.pop("options", {})}
        own = {"prompts": [self.prompt], "max_tokens": NEW_TOKENS, **self.shown, **more}
        return Job(str(self.folder), draft=None if draft is None else str(draft), options=options, **own)

    @property
    def prompt(self) -> list[int]:
        """The prompt of the reference."""
        return self.tokens[:-NEW_TOKENS]

    @property
    def generated(self) -> list[int]:
        """What transformers generates after the prompt."""
        return self.tokens[-NEW_TOKENS:]


def prompt_tokens(count: int = 20, start: int = 11) -> list[int]:
    """A prompt of ordinary tokens."""
    return [1] + [(i * 37 + start) % 900 + 3 for i in range(count)]


def measure(model: Any, prompt: list[int], **pixels: Any) -> tuple[list[int], Reference]:
    """The prompt with the greedy tokens after it, recomputed from scratch each time, and the states of the whole."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            logits = model(input_ids=torch.tensor([ids]), use_cache=False, **pixels).logits
            ids.append(int(logits[0, -1].argmax()))
    whole = torch.tensor([ids])
    inputs = {"input_ids": whole, "attention_mask": torch.ones_like(whole), **pixels}
    return ids, reference_states(model, inputs, image_token(model.config))


def config_of(name: str) -> dict[str, Any]:
    """The config of a case: a file next to the tests, else the tiny config of an adapter."""
    path = Path(__file__).parent / "configs" / f"{name}.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else tiny_config(name)


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """The case of a name, built once."""

    @cache
    def build(name: str) -> Case:
        config = config_of(name)
        folder = tmp_path_factory.mktemp(name) / "target"
        model = save_checkpoint(config, folder)
        # no room for pictures: the tower is then not profiled with one
        options = {"limit_mm_per_prompt": dict.fromkeys(kinds, 0)} if (kinds := modalities(config)) else {}
        return Case(folder, *measure(model, prompt_tokens()), options)

    return build


@pytest.fixture(scope="session")
def picture_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Kimi-K2.5 with a picture between the words of its prompt."""
    config = tiny_config("kimi_k25")
    folder = tmp_path_factory.mktemp("picture") / "target"
    model = save_checkpoint(config, folder)
    add_processor(folder)
    inputs = image_inputs(model, picture())
    laid_out = inputs.pop("input_ids")[0].tolist()
    inputs.pop("attention_mask")
    modality = picture_modality(config)
    shown = {
        "prompts": [fold_placeholders(laid_out, config["image_token_id"])],
        "pictures": [str(save_picture(picture(), folder.parent / "picture.png"))],
        "modality": modality,
    }
    return Case(folder, *measure(model, laid_out, **inputs), {"limit_mm_per_prompt": {modality: 1}}, shown)


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the engines write what they say; kept for reading after a failure."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def stock(logs: Path) -> Iterator[Session]:
    """vLLM as it comes: the plug-in is switched off."""
    with Session({"EAGLE_ADAPTERS": "off", "VLLM_MLA_DISABLE": "1"}, logs / "stock.log") as session:
        yield session


@pytest.fixture(scope="session")
def ours(logs: Path) -> Iterator[Session]:
    """vLLM with the plug-in, found through its entry point."""
    with Session({"VLLM_MLA_DISABLE": "1"}, logs / "ours.log") as session:
        yield session
