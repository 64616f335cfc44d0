"""Run real vLLM and read what it did: tokens, acceptance, the states its drafter got; `RUNNER` is for `verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_adapters.backends.vllm import BACKEND
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.verify.pictures import fold_placeholders, save_picture
from eagle_adapters.verify.runner import Prompt
from eagle_adapters.verify.served import Served, ServedRunner
from eagle_adapters.verify.vllm.picture import PROCESSORS, add_processor

if TYPE_CHECKING:  # the module is also run by itself, which must not meet it imported
    from eagle_adapters.verify.vllm.session import Session

_ENVIRONMENT = {"VLLM_MLA_DISABLE": "1", "EAGLE_ADAPTERS_CONVENTION": "boundary"}
"""vLLM's CPU kernels want other cache blocks for latent attention than for the draft's, unless the first is off."""


class VllmRunner(ServedRunner["Session"]):
    """A stock vLLM."""

    engine = "vllm"
    pictures = frozenset(PROCESSORS)

    def version(self) -> str:
        """The version of vLLM."""
        return BACKEND.version() or "not installed"

    def start(self) -> Session:
        """A process that runs engines."""
        from eagle_adapters.verify.vllm.session import Session

        return Session(_ENVIRONMENT)

    def translate(self, folder: Path) -> None:
        """Rewrite a checkpoint of `transformers` in place."""
        from eagle_adapters.verify.vllm.checkpoint import translate

        translate(folder)

    def serve(self, session: Session, given: Served, prompt: Prompt, max_new_tokens: int) -> tuple[list[int], Any]:
        """The prompt's ids with the generated ones, and position -> states."""
        from eagle_adapters.verify.vllm.checkpoint import modalities, picture_modality
        from eagle_adapters.verify.vllm.session import Job
        from eagle_adapters.verify.vllm.states import observed_states

        room = dict.fromkeys(modalities(given.config), 0)
        shown: dict[str, Any] = {"prompts": [prompt.token_ids]}
        if prompt.picture is not None:
            add_processor(given.target)
            file = save_picture(prompt.picture, given.seen.with_suffix(".png"))
            modality = picture_modality(given.config)
            room[modality] = 1
            folded = fold_placeholders(prompt.token_ids, given.config["image_token_id"])
            shown = {"prompts": [folded], "pictures": [str(file)], "modality": modality}
        outcome = session.run(
            Job(
                str(given.target),
                draft=str(given.draft),
                max_tokens=max_new_tokens,
                options={"limit_mm_per_prompt": room} if room else {},
                observe=str(given.seen),
                **shown,
            )
        )
        if outcome.error is not None:
            raise AdaptationError(Diagnostic("EA612", "vLLM did not serve the target", found=outcome.error))
        tokens = [*prompt.token_ids, *outcome.tokens[0]]
        return tokens, observed_states(given.seen, tokens[:-1])


RUNNER = VllmRunner()
