"""The modes of vLLM in which captured states are not proven to be right: each is refused before weights are loaded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from eagle_adapters.backends.vllm.weights import shapes
from eagle_adapters.codegen.compile import source_digest
from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.errors import AdaptationError
from eagle_adapters.plan import Plan

_OUT_OF_REACH = (
    ("vllm.model_executor.models.transformers", "0"),
    ("vllm.models.deepseek_v4", "0"),
    ("vllm.models.deepseek_v32", "N"),
)
"""Modules whose own capture misses a boundary without a word (vllm 0.32.0)."""


def check_modes(config: Any) -> None:
    """Refuse what loses states whatever the class.

    Raises:
        AdaptationError: EA526.
    """
    parallel = config.parallel_config
    if parallel.pipeline_parallel_size > 1 and not config.use_v2_model_runner:
        raise _unproven(
            "pipeline parallelism on model runner V1",
            "V1 switches capture on in the last rank only, so early layers are lost",
            "use --pipeline-parallel-size 1",
        )
    if parallel.enable_dbo and not config.use_v2_model_runner:
        raise _unproven(
            "dual-batch overlap on model runner V1", "its states are joined wrongly", "leave out --enable-dbo"
        )
    if config.model_config.is_encoder_decoder:
        raise _unproven(
            "an encoder-decoder target",
            "the draft would see the decoder's tokens only, and no one has compared its states",
            "serve it without a speculative config",
        )


def check_class(config: Any, cls: type, plan: Plan, boundaries: list[int]) -> None:
    """Refuse what the configuration asks of one class and its states would not be right.

    Args:
        config: the `VllmConfig`.
        cls: the target's class.
        plan: its plan; the findings are its limits.
        boundaries: what is to be captured.

    Raises:
        AdaptationError: EA523, EA524, EA526, EA530, EA531, EA532.
    """
    _check_reach(config, cls, boundaries)
    if plan.edits:
        _check_adapted(config, cls)
    for finding in plan.findings:
        next_step = _trespass(config, finding.code)
        if next_step is not None:
            raise AdaptationError(dataclasses.replace(finding, severity=Severity.ERROR, next_step=next_step))


def mark_generated(config: Any, plan: Plan) -> None:
    """Make the generated texts part of what vLLM keys its cache of compiled graphs by.

    vLLM hashes the files that a graph was traced from, and a generated method stands in none
    (vllm 0.32.0, compilation/backends.py); `additional_config` is part of the key as well (config/vllm.py).
    """
    extra = config.additional_config
    if isinstance(extra, dict):
        texts = [getattr(edit, "source", "") for edit in plan.edits]
        extra.setdefault("eagle_adapters", {})[plan.target] = source_digest("\n".join(texts))


def _check_reach(config: Any, cls: type, boundaries: list[int]) -> None:
    """Refuse a boundary that a class with its own capture never delivers."""
    last = int(config.model_config.get_total_num_hidden_layers())
    for owner in cls.__mro__:
        for module, name in _OUT_OF_REACH:
            missed = 0 if name == "0" else last
            if owner.__module__.startswith(module) and missed in boundaries:
                raise AdaptationError(
                    Diagnostic(
                        "EA531",
                        f"{cls.__qualname__} never delivers boundary {missed}",
                        expected="boundaries within reach of its own capture",
                        found=str(boundaries),
                        next_step="use a draft with other boundaries",
                    )
                )


def _check_adapted(config: Any, cls: type) -> None:
    """Refuse the modes in which a hook of this library is not proven."""
    if config.parallel_config.pipeline_parallel_size > 1:
        raise _unproven(
            f"pipeline parallelism with the generated hooks of {cls.__qualname__}",
            "no one has compared its states",
            "use --pipeline-parallel-size 1 (tensor parallelism is proven)",
        )
    # 0.32.0 has no such pass any more
    if getattr(config.compilation_config.pass_config, "enable_sp", False):
        raise _unproven(
            f"sequence parallelism in compiled graphs with the generated hooks of {cls.__qualname__}",
            "states may be shards",
            "set pass_config.enable_sp to false",
        )


def _trespass(config: Any, code: str) -> str | None:
    """What to do when the configuration is beyond the limit that a finding states, or None when it is within."""
    parallel = config.parallel_config
    if code == "EA523" and parallel.tensor_parallel_size > 1:
        return "use --tensor-parallel-size 1"
    if code == "EA524" and str(config.model_config.dtype) == "torch.float16":
        return "use --dtype bfloat16"
    if code == "EA532" and parallel.use_sequence_parallel_moe:
        return "leave out --enable-expert-parallel, or use --data-parallel-size 1"
    if code == "EA530" and not config.use_v2_model_runner:
        drafted = shapes(Path(str(config.speculative_config.draft_model_config.model)))
        if drafted and "lm_head.weight" not in drafted:
            return "put the target's head into the draft's checkpoint as lm_head.weight"
    return None


def _unproven(what: str, why: str, next_step: str) -> AdaptationError:
    return AdaptationError(
        Diagnostic("EA526", f"EAGLE-3 states are not proven under {what}", found=why, next_step=next_step)
    )
