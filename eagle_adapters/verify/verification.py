"""The whole verification: a checkpoint, an engine's captured states, the reference, the verdict."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from eagle_adapters.boundaries import check_boundaries
from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.errors import DataError
from eagle_adapters.introspect import inspect_model
from eagle_adapters.registry import config_digest
from eagle_adapters.tiny import image_inputs, image_token, picture, save_tiny, text_inputs, tiny_config
from eagle_adapters.verify.compare import TOLERANCE, Reference, compare
from eagle_adapters.verify.evidence import Evidence, PromptResult, package_versions
from eagle_adapters.verify.reference import reference_states
from eagle_adapters.verify.runner import Captured, Prompt, Runner
from eagle_adapters.verify.transformers import load_model

MAX_NEW_TOKENS = 4
"""How many tokens are generated: enough for decode steps with a KV cache to be among the compared positions."""


def verify(
    target: str | Path,
    runner: Runner,
    *,
    boundaries: Sequence[int] | None = None,
    image: torch.Tensor | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
    seed: int = 0,
) -> Evidence:
    """Capture a target's states in an engine and compare every one with the independent reference.

    Args:
        target: a family of `adapters/` (a tiny random checkpoint is built from its tiny.json), or a checkpoint folder.
        runner: the engine.
        boundaries: what to capture; None for all of 0..N.
        image: a picture [3, H, W] in 0..1 instead of the drawn one.
        max_new_tokens: how many tokens to generate after each prompt.
        seed: of the weights of a tiny checkpoint, and of the prompt's tokens.

    Returns:
        The evidence; `passed` says whether everything matched.

    Raises:
        DataError: EA102, EA103, EA106 the target is neither.
        BoundaryError: EA001, EA002.
        AdaptationError: as `eagle_adapters.wrap`; EA612, EA614, EA615, the engine did not serve or cannot run here.
    """
    remarks = runner.remarks()  # first: an engine that cannot run here is said before anything is computed
    with tempfile.TemporaryDirectory(prefix="eagle-adapters-") as folder:
        family, checkpoint = _checkpoint(target, Path(folder), seed)
        model = load_model(checkpoint)
        anatomy = inspect_model(model)
        assert anatomy.num_layers is not None, "a live model has a countable list of layers"
        n = anatomy.num_layers.value
        asked = check_boundaries(range(n + 1) if boundaries is None else sorted(boundaries), n)
        prompts, findings = _prompts(model, runner, image, seed)
        captured = runner.run(checkpoint, prompts, [int(b) for b in asked], max_new_tokens)
        findings += remarks
        results = []
        for prompt, capture in zip(prompts, captured, strict=True):
            reference = reference_states(model, _extended(model, prompt, capture), image_token(model.config))
            result, faults = _judge(prompt, capture, reference, [int(b) for b in asked])
            results.append(result)
            findings += faults
        return Evidence(
            family=family,
            architecture=type(model).__name__,
            engine=runner.engine,
            engine_version=runner.version(),
            config_sha256=_config_hash(target, checkpoint),
            num_layers=n,
            boundaries=tuple(int(b) for b in asked),
            tolerance=TOLERANCE[torch.float32],
            results=tuple(results),
            findings=tuple(findings),
            versions=package_versions(),
        )


def _checkpoint(target: str | Path, folder: Path, seed: int) -> tuple[str | None, Path]:
    path = Path(target)
    if path.is_dir():
        if (path / "config.json").is_file():
            return None, path
        raise DataError(
            Diagnostic("EA106", f"{path} is no checkpoint", expected="a folder with config.json", found="none in it")
        )
    return str(target), save_tiny(str(target), folder, seed=seed)


def _config_hash(target: str | Path, checkpoint: Path) -> str:
    """The hash of the fields the model was built from, independent of how the file is laid out."""
    is_folder = Path(target).is_dir()
    fields = json.loads((checkpoint / "config.json").read_text("utf-8")) if is_folder else tiny_config(str(target))
    return config_digest(fields)


def _prompts(
    model: Any, runner: Runner, image: torch.Tensor | None, seed: int
) -> tuple[list[Prompt], list[Diagnostic]]:
    prompts = [Prompt("text", text_inputs(model, seed=seed))]
    if image_token(model.config) is None and getattr(model.config, "vision_config", None) is None:
        return prompts, []
    if not runner.takes_pictures(model.config.model_type):
        blind = Diagnostic(
            "EA613",
            f"the {runner.engine} runner has no way to give a {model.config.model_type} target a picture",
            Severity.WARNING,
            next_step="text only was proven",
        )
        return prompts, [blind]
    shown = picture() if image is None else image
    try:
        prompts.append(Prompt("image", image_inputs(model, shown, seed=seed), shown))
    except DataError as error:
        cause = error.diagnostics[0]
        note = Diagnostic(
            cause.code, cause.message, Severity.WARNING, found=cause.found, next_step="text only was proven"
        )
        return prompts, [note]
    return prompts, []


def _extended(model: Any, prompt: Prompt, capture: Captured) -> Mapping[str, Any]:
    """The prompt's inputs with the generated tokens whose states were captured appended."""
    positions = max((state.shape[0] for state in capture.states.values()), default=len(prompt.token_ids))
    ids = torch.tensor([list(capture.token_ids)[:positions]], device=model.device)
    inputs = {**prompt.inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in inputs:
            inputs[name] = (ids == image_token(model.config)).long()
    return inputs


def _judge(
    prompt: Prompt, capture: Captured, reference: Reference, boundaries: Sequence[int]
) -> tuple[PromptResult, list[Diagnostic]]:
    tolerance = TOLERANCE[torch.float32]
    matches, faults = compare(capture.states, reference, boundaries, tolerance)
    n = reference.num_layers
    logits_error = None
    if n in capture.states:
        state = capture.states[n].to(reference.logits.dtype)
        expected = reference.logits[: state.shape[0]]
        logits_error = float((reference.finish(state) - expected).abs().max())
        if not logits_error <= tolerance * float(expected.abs().max()):
            faults.append(
                Diagnostic(
                    "EA609",
                    f"the logits rebuilt from boundary {n} are not the target's",
                    expected=f"at most {tolerance * float(expected.abs().max()):.2g} apart",
                    found=f"{logits_error:.2g}",
                    where=f"prompt {prompt.name}",
                )
            )
    length = len(prompt.token_ids)
    tokens = (length, len(capture.token_ids) - length)
    return PromptResult(prompt.name, tokens, int(reference.image.sum()), tuple(matches), logits_error), faults
