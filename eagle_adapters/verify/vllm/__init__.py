"""Run real vLLM and read what it did: tokens, acceptance, the states its drafter got; `RUNNER` is for `verify`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle_adapters.backends.vllm import BACKEND
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.verify.runner import Captured, Prompt


class VllmRunner:
    """See `eagle_adapters.verify.runner.Runner`: a stock vLLM in a process of its own, adapted by the plug-in."""

    engine = "vllm"
    pictures = False

    def version(self) -> str:
        """The version of vLLM."""
        return BACKEND.version() or "not installed"

    def run(
        self, checkpoint: Path, prompts: Sequence[Prompt], boundaries: Sequence[int], max_new_tokens: int
    ) -> Sequence[Captured]:
        """Serve every prompt with a random draft at `boundaries`, and give the states that reached that draft.

        Raises:
            AdaptationError: EA612, the engine failed; its own error is in `found`.
        """
        from eagle_adapters.verify.vllm.session import Session

        with tempfile.TemporaryDirectory(prefix="eagle-adapters-") as scratch, Session(_ENVIRONMENT) as session:
            folder = Path(scratch)
            target, config = _engine_copy(checkpoint, folder / "target")
            _random_draft(folder / "draft", config, boundaries)
            return [_capture(session, target, folder, config, prompt, boundaries, max_new_tokens) for prompt in prompts]


_ENVIRONMENT = {"VLLM_MLA_DISABLE": "1", "EAGLE_ADAPTERS_CONVENTION": "boundary"}
"""vLLM's CPU kernels want other cache blocks for latent attention than for the draft's, unless the first is off."""


def _engine_copy(checkpoint: Path, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The checkpoint in the words that vLLM reads."""
    from eagle_adapters.verify.vllm.checkpoint import speak_dialect

    shutil.copytree(checkpoint, folder)
    return folder, speak_dialect(folder)


def _random_draft(folder: Path, config: dict[str, Any], boundaries: Sequence[int]) -> None:
    import torch

    from eagle_adapters.verify.vllm.draft import save_draft

    text = config.get("text_config", config)
    width = text.get("hidden_size") or text["n_embd"]
    vocabulary = text.get("vocab_size") or config["vocab_size"]
    generator = torch.Generator().manual_seed(0)
    fc = torch.randn(width, width * len(boundaries), generator=generator) * 0.02
    save_draft(folder, fc=fc, head=torch.randn(vocabulary, width, generator=generator), ids=boundaries)


def _capture(
    session: Any,
    target: Path,
    folder: Path,
    config: dict[str, Any],
    prompt: Prompt,
    boundaries: Sequence[int],
    max_new_tokens: int,
) -> Captured:
    import torch

    from eagle_adapters.verify.vllm.checkpoint import modalities
    from eagle_adapters.verify.vllm.reference import observed_states
    from eagle_adapters.verify.vllm.session import Job

    seen = folder / f"seen-{prompt.name}"
    outcome = session.run(
        Job(
            str(target),
            [prompt.token_ids],
            draft=str(folder / "draft"),
            max_tokens=max_new_tokens,
            options={"limit_mm_per_prompt": dict.fromkeys(modalities(config), 0)} if modalities(config) else {},
            observe=str(seen),
        )
    )
    if outcome.error is not None:
        raise AdaptationError(Diagnostic("EA612", f"vLLM did not serve {target.name}", found=outcome.error))
    tokens = [*prompt.token_ids, *outcome.tokens[0]]
    found = observed_states(seen, tokens[:-1])
    count = next(i for i in range(len(found) + 1) if i not in found)
    stacked = torch.stack([found[i] for i in range(count)]).float()
    width = stacked.shape[-1] // len(boundaries)
    return Captured(prompt.name, tokens, {b: stacked[:, k * width : (k + 1) * width] for k, b in enumerate(boundaries)})


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a checkpoint."""
    found: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    return found


RUNNER = VllmRunner()
