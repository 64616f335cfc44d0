"""The exact command that serves a target with a draft."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from eagle_adapters.boundaries import Boundary, Convention
from eagle_adapters.drafts.engine import SGLANG, views
from eagle_adapters.drafts.spec import DraftSpec
from eagle_adapters.drafts.target import TargetSpec

CONVENTION_ENV = "EAGLE_ADAPTERS_CONVENTION"
"""What the plug-ins read a declared convention from."""

DEFAULT_STEPS = 3
"""Draft steps where the checkpoint asks for none."""


def launch_command(
    engine: str,
    target: TargetSpec,
    draft: DraftSpec,
    boundaries: tuple[Boundary, ...] | None,
    declared: Convention | None = None,
) -> str:
    """The command line for a shell.

    For vLLM it chooses the V1 runner when only that one reads the draft's fields rightly.

    Args:
        engine: `vllm` or `sglang`.
        target: the target.
        draft: the draft.
        boundaries: what must be captured, or None while undecided.
        declared: the convention that the user declared; handed on to the plug-in.
    """
    environment = [] if declared is None or draft.ids is None else [f"{CONVENTION_ENV}={declared}"]
    steps = draft.speculative_tokens or DEFAULT_STEPS
    trust = ["--trust-remote-code"] if "auto_map" in target.document else []
    model, head = _location(target.name), _location(draft.name)
    if engine == SGLANG:
        return shlex.join(
            [
                *environment,
                *("python", "-m", "sglang.launch_server", "--model-path", model, *trust),
                *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", head),
                *("--speculative-num-steps", str(steps), "--speculative-eagle-topk", "1"),
                *("--speculative-num-draft-tokens", str(steps + 1)),
            ]
        )
    speculative = {"method": "eagle3", "model": head, "num_speculative_tokens": steps}
    if _needs_v1(engine, target, draft, boundaries):
        environment.append("VLLM_USE_V2_MODEL_RUNNER=0")
    words = ["vllm", "serve", model, *trust, "--speculative-config", json.dumps(speculative)]
    return shlex.join([*environment, *words])


def _needs_v1(engine: str, target: TargetSpec, draft: DraftSpec, boundaries: tuple[Boundary, ...] | None) -> bool:
    if not draft.uses_states:
        return True
    if boundaries is None:
        return False
    v2, v1 = views(engine, draft, target)
    wanted = sorted(boundaries)
    return sorted(v2.boundaries or ()) != wanted and sorted(v1.boundaries or ()) == wanted


def _location(name: str) -> str:
    """A config.json alone stands for its folder: engines want the folder."""
    path = Path(name)
    return str(path.parent) if path.suffix == ".json" else name
