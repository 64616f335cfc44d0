"""Run real, unmodified SGLang and read what it did: tokens, acceptance, states; `RUNNER` is for `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle_adapters.backends.sglang import BACKEND
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.verify.pictures import fold_placeholders, save_picture
from eagle_adapters.verify.runner import Prompt
from eagle_adapters.verify.served import Served, ServedRunner
from eagle_adapters.verify.sglang.kernels import find_kernels, remark
from eagle_adapters.verify.sglang.picture import OPTIONS, PROCESSORS, add_processor

if TYPE_CHECKING:  # the module is also run by itself, which must not meet it imported
    from eagle_adapters.verify.sglang.session import Session


class SGLangRunner(ServedRunner["Session"]):
    """A stock SGLang on CPU."""

    engine = "sglang"
    pictures = frozenset(PROCESSORS)

    def version(self) -> str:
        """The version of SGLang."""
        return BACKEND.version() or "not installed"

    def remarks(self) -> Sequence[Diagnostic]:
        """Whose kernels are used, when they are not SGLang's.

        Raises:
            AdaptationError: EA614, EA615, SGLang is not installed, or its CPU kernels cannot be loaded.
        """
        before = super().remarks()
        stand_in = find_kernels()
        return (*before, remark(stand_in)) if stand_in else before

    def start(self) -> Session:
        """A process that runs engines.

        Raises:
            AdaptationError: EA615, SGLang's CPU kernels cannot be loaded.
        """
        from eagle_adapters.verify.sglang.session import Session

        find_kernels()
        return Session({"EAGLE_ADAPTERS_CONVENTION": "boundary"})

    def translate(self, folder: Path) -> None:
        """Rewrite a checkpoint of `transformers` in place."""
        from eagle_adapters.verify.sglang.checkpoint import translate

        translate(folder)

    def serve(self, session: Session, given: Served, prompt: Prompt, max_new_tokens: int) -> tuple[list[int], Any]:
        """The prompt's ids with the generated ones, and position -> states."""
        from eagle_adapters.verify.sglang.session import Job
        from eagle_adapters.verify.sglang.states import observed_states

        shown: dict[str, Any] = {"prompts": [prompt.token_ids]}
        if prompt.picture is not None:
            add_processor(given.target)
            file = save_picture(prompt.picture, given.seen.with_suffix(".png"))
            folded = fold_placeholders(prompt.token_ids, given.config["image_token_id"])
            shown = {"prompts": [folded], "images": [str(file)], "options": OPTIONS}
        elif "vision_config" in given.config:
            shown["options"] = {"enable_multimodal": False}
        job = Job(
            str(given.target), draft=str(given.draft), max_tokens=max_new_tokens, observe=str(given.seen), **shown
        )
        outcome = session.run(job)
        if outcome.error is not None:
            found = f"{outcome.error}\n{outcome.log[-3000:]}"
            raise AdaptationError(Diagnostic("EA612", "SGLang did not serve the target", found=found))
        return [*prompt.token_ids, *outcome.tokens[0]], observed_states(given.seen, prompt.token_ids)


RUNNER = SGLangRunner()
