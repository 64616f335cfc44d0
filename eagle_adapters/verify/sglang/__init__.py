"""Run real, unmodified SGLang and read what it did: tokens, acceptance, states; `RUNNER` is for `verify`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from eagle_adapters.backends.sglang import BACKEND
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.verify.runner import Captured, Prompt


class SGLangRunner:
    """See `eagle_adapters.verify.runner.Runner`: a stock SGLang on CPU in its own processes, adapted by the plug-in."""

    engine = "sglang"
    pictures = False

    def version(self) -> str:
        """The version of SGLang."""
        return BACKEND.version() or "not installed"

    def run(
        self, checkpoint: Path, prompts: Sequence[Prompt], boundaries: Sequence[int], max_new_tokens: int
    ) -> Sequence[Captured]:
        """Serve every prompt with a random draft at `boundaries`, and give the states that reached that draft.

        Raises:
            AdaptationError: EA612, the engine failed; its own error is in `found`.
        """
        from eagle_adapters.verify.sglang.session import Session

        with tempfile.TemporaryDirectory(prefix="eagle-adapters-") as scratch, Session(_ENVIRONMENT) as session:
            folder = Path(scratch)
            _prepare(checkpoint, folder, boundaries)
            return [_capture(session, folder, prompt, boundaries, max_new_tokens) for prompt in prompts]


_ENVIRONMENT = {"EAGLE_ADAPTERS_CONVENTION": "boundary"}


def _prepare(checkpoint: Path, folder: Path, boundaries: Sequence[int]) -> None:
    """The checkpoint in the words that SGLang reads, and a random draft."""
    import torch

    from eagle_adapters.verify.sglang.checkpoint import translate
    from eagle_adapters.verify.vllm.draft import save_draft

    shutil.copytree(checkpoint, folder / "target")
    translate(folder / "target")
    config = json.loads((folder / "target" / "config.json").read_text("utf-8"))
    text = config.get("text_config", config)
    width = text.get("hidden_size") or text["n_embd"]
    vocabulary = text.get("vocab_size") or config["vocab_size"]
    generator = torch.Generator().manual_seed(0)
    fc = torch.randn(width, width * len(boundaries), generator=generator) * 0.02
    save_draft(folder / "draft", fc=fc, head=torch.randn(vocabulary, width, generator=generator), ids=boundaries)


def _capture(session: object, folder: Path, prompt: Prompt, boundaries: Sequence[int], max_new_tokens: int) -> Captured:
    from eagle_adapters.verify.sglang.session import Job, Session
    from eagle_adapters.verify.sglang.states import observed_states, split_states

    assert isinstance(session, Session)
    seen = folder / f"seen-{prompt.name}"
    seen.mkdir()
    has_pictures = "vision_config" in (folder / "target" / "config.json").read_text("utf-8")
    outcome = session.run(
        Job(
            str(folder / "target"),
            [prompt.token_ids],
            draft=str(folder / "draft"),
            max_tokens=max_new_tokens,
            observe=str(seen),
            options={"enable_multimodal": False} if has_pictures else {},
        )
    )
    if outcome.error is not None:
        raise AdaptationError(
            Diagnostic("EA612", "SGLang did not serve the target", found=f"{outcome.error}\n{outcome.log[-3000:]}")
        )
    tokens = [*prompt.token_ids, *outcome.tokens[0]]
    return Captured(prompt.name, tokens, split_states(observed_states(seen, prompt.token_ids), boundaries))


RUNNER = SGLangRunner()
