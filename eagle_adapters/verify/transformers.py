"""The `transformers` runner: a wrapped model that captures while `generate()` runs, prefill and decode steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.tiny.models import attention_kernel
from eagle_adapters.verify.runner import Captured, Prompt
from eagle_adapters.wrapping import unwrap, wrap


class TransformersRunner:
    """See `eagle_adapters.verify.runner.Runner`."""

    engine = "transformers"

    def version(self) -> str:
        """The version of transformers."""
        import transformers

        return str(transformers.__version__)

    def takes_pictures(self, model_type: str) -> bool:
        """Always: the prompt's tensors are a forward's arguments."""
        return True

    def remarks(self) -> Sequence[Diagnostic]:
        """None."""
        return ()

    def run(
        self, checkpoint: Path, prompts: Sequence[Prompt], boundaries: Sequence[int], max_new_tokens: int
    ) -> Sequence[Captured]:
        """Generate from every prompt through the wrapped model."""
        model = wrap(load_model(checkpoint))
        try:
            return [generate_captured(model, prompt, boundaries, max_new_tokens) for prompt in prompts]
        finally:
            unwrap(model)


def generate_captured(model: Any, prompt: Prompt, boundaries: Sequence[int], max_new_tokens: int) -> Captured:
    """Generate greedily from one prompt with a wrapped model, and give what was captured."""
    with model.eagle3_capture(boundaries) as states:
        tokens = model.generate(
            **prompt.inputs, max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    return Captured(prompt.name, tokens[0].tolist(), {int(b): states[b][0] for b in states.boundaries})


def load_model(checkpoint: Path) -> Any:
    """The checkpoint's model in float32, by the class its config names; no remote code, safetensors only."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(checkpoint)
    cls = getattr(transformers, config.architectures[0])
    kernel = attention_kernel(config)
    return cls.from_pretrained(checkpoint, dtype="float32", use_safetensors=True, attn_implementation=kernel).eval()


RUNNER = TransformersRunner()
