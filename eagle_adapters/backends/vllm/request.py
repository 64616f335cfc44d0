"""What an eagle3 speculative config asks for, settled once: the boundaries, written where both model runners read them.

vLLM 0.32.0 reads layer ids from different keys in its two runners (V1 v1/worker/gpu_model_runner.py, V2
v1/worker/gpu/spec_decode/eagle/eagle3_utils.py); both read the top-level key first, and both drafts take the width of
`fc` from `num_aux_hidden_states`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from eagle_adapters.boundaries import Boundary, Convention, Reading, read_ids
from eagle_adapters.codegen.compile import source_digest
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError, BoundaryError, DataError
from eagle_adapters.plan import Plan

logger = logging.getLogger("eagle_adapters.vllm")

CONVENTION_ENV = "EAGLE_ADAPTERS_CONVENTION"
"""Declares how the layer ids of the draft are meant: `boundary` or `layer_output`."""

KEY = "eagle_aux_hidden_state_layer_ids"
_SETTLED = "eagle_adapters_boundaries"
_IMAGE_FIELDS = ("image_token_id", "image_token_index", "media_placeholder_token_id", "img_context_token_id")


def wants_states(config: Any) -> bool:
    """Whether a `VllmConfig` asks for EAGLE-3 with states of the target."""
    speculation = getattr(config, "speculative_config", None)
    if speculation is None or speculation.method != "eagle3" or speculation.draft_model_config is None:
        return False
    nested = getattr(speculation.draft_model_config.hf_config, "eagle_config", None) or {}
    return bool(nested.get("use_aux_hidden_state", True))


def settle(config: Any) -> None:
    """Check what a `VllmConfig` asks for, and write the boundaries and the names that the engine reads into it.

    Does nothing without an eagle3 speculative config; a second call changes nothing.

    Raises:
        BoundaryError: EA001, EA002, EA004, EA005 of the layer ids; EA527.
        AdaptationError: EA520, EA526, EA528, EA529.
    """
    speculation = getattr(config, "speculative_config", None)
    if speculation is None or speculation.method != "eagle3" or speculation.draft_model_config is None:
        return
    draft = speculation.draft_model_config.hf_config
    if not wants_states(config):
        if config.use_v2_model_runner:
            raise AdaptationError(
                Diagnostic(
                    "EA529",
                    "the draft says use_aux_hidden_state: false, which model runner V2 ignores",
                    expected="model runner V1",
                    found="model runner V2",
                    consequence="it would be handed states that it was not made for",
                    next_step="set VLLM_USE_V2_MODEL_RUNNER=0",
                )
            )
        return
    if getattr(draft, _SETTLED, None) is not None:
        return
    _check_modes(config)
    num_layers = int(config.model_config.get_total_num_hidden_layers())
    ids = _ids(draft)
    reading = read_ids(
        ids,
        num_layers,
        declared=_declared(),
        registered=_registered(str(speculation.draft_model_config.model), ids, num_layers),
    )
    boundaries = _decided(reading)
    _check_width(speculation.draft_model_config, config.model_config, boundaries)
    values = [int(b) for b in boundaries]
    setattr(draft, KEY, values)
    draft.num_aux_hidden_states = len(values)
    if isinstance(getattr(draft, "eagle_config", None), dict):
        draft.eagle_config = {**draft.eagle_config, KEY: values}
    setattr(draft, _SETTLED, values)
    _name_image_token(config.model_config.hf_config)
    logger.info("EAGLE-3 %s", reading)


def _ids(draft: Any) -> tuple[int, ...] | None:
    nested = getattr(draft, "eagle_config", None) or {}
    stated = {
        where: tuple(value)
        for where, value in (
            (KEY, getattr(draft, KEY, None)),
            (f"eagle_config.{KEY}", nested.get(KEY)),
            ("eagle_config.layer_ids", nested.get("layer_ids")),
        )
        if value
    }
    if len(set(stated.values())) > 1:
        raise AdaptationError(
            Diagnostic(
                "EA520",
                "the draft's config states its layer ids twice, and differently",
                expected="one list",
                found="; ".join(f"{where}: {list(ids)}" for where, ids in stated.items()),
                consequence="the two model runners of vLLM would capture different states",
                next_step="keep the right one in the draft's config.json",
            )
        )
    return next(iter(stated.values()), None)


def _declared() -> Convention | None:
    value = os.environ.get(CONVENTION_ENV)
    if not value:
        return None
    try:
        return Convention(value)
    except ValueError:
        raise BoundaryError(
            Diagnostic(
                "EA005", f"{CONVENTION_ENV} names no convention", expected=", ".join(Convention), found=repr(value)
            )
        ) from None


def _registered(name: str, ids: tuple[int, ...] | None, num_layers: int) -> Convention | None:
    """What the registry says of this checkpoint, when its ids and the target's depth agree."""
    if ids is None:
        return None
    from eagle_adapters import registry

    try:
        row = registry.load().draft("/".join(Path(name).parts[-2:]))
    except DataError:
        return None
    if row is None or row.ids != ids or row.num_layers != num_layers:
        return None
    return row.convention


def _decided(reading: Reading) -> tuple[Boundary, ...]:
    try:
        boundaries = reading.require()
    except BoundaryError as error:
        cause = error.diagnostics[0]
        raise BoundaryError(
            Diagnostic(
                cause.code,
                cause.message,
                expected=cause.expected,
                found=cause.found,
                consequence="a guess would serve with low acceptance and no error",
                next_step=f"declare it: {CONVENTION_ENV}=boundary or {CONVENTION_ENV}=layer_output",
            )
        ) from None
    if list(boundaries) != sorted(boundaries):
        raise BoundaryError(
            Diagnostic(
                "EA527",
                f"the boundaries {[int(b) for b in boundaries]} are not in ascending order",
                expected=str(sorted(map(int, boundaries))),
                found=str([int(b) for b in boundaries]),
                consequence="vLLM hands states over in ascending order, so that fc would get them permuted",
                next_step="sort the ids in the draft's config.json and permute the columns of fc.weight accordingly",
            )
        )
    return boundaries


def _check_width(draft_config: Any, target_config: Any, boundaries: tuple[Boundary, ...]) -> None:
    """Compare `fc.weight` with the boundaries; a draft that is not in a local folder is checked by its config alone."""
    draft = draft_config.hf_config
    stated = getattr(draft, "num_aux_hidden_states", None)
    width = getattr(draft, "target_hidden_size", None) or target_config.get_hidden_size()
    found = None if stated is None or stated == len(boundaries) else f"num_aux_hidden_states: {stated}"
    shape = _shapes(Path(str(draft_config.model))).get("fc.weight")
    if found is None and shape is not None and shape[-1] != len(boundaries) * width:
        found = f"fc.weight {list(shape)}, which is {shape[-1] / width:g} states of {width}"
    if found is not None:
        raise AdaptationError(
            Diagnostic(
                "EA528",
                f"the draft's fc does not take {len(boundaries)} states",
                expected=f"{len(boundaries) * width} columns: {width} for each of {[int(b) for b in boundaries]}",
                found=found,
                next_step="name as many layer ids in the draft's config.json as its fc was trained with",
            )
        )


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Tensor name without `model.` -> shape, of a local checkpoint; the engine says what is wrong with a file."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        try:
            with safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - a safe_open handle is no mapping
                    found[name.removeprefix("model.")] = tuple(opened.get_slice(name).get_shape())
        except (SafetensorError, OSError):
            return {}
    return found


def _check_modes(config: Any) -> None:
    """Refuse what loses states whatever the class."""
    parallel = config.parallel_config
    if parallel.pipeline_parallel_size > 1 and not config.use_v2_model_runner:
        raise _unproven(
            "pipeline parallelism on model runner V1",
            "V1 switches capture on in the last rank only, so early layers are lost",
            "use --pipeline-parallel-size 1",
        )
    if getattr(parallel, "enable_dbo", False) and not config.use_v2_model_runner:
        raise _unproven(
            "dual-batch overlap on model runner V1", "its states are joined wrongly", "leave out --enable-dbo"
        )


def check_adapted_modes(config: Any, findings: Any, class_label: str) -> None:
    """Refuse the modes in which a generated capture is not proven.

    Raises:
        AdaptationError: EA526, or EA523, EA524 and EA530 of the class.
    """
    if config.parallel_config.pipeline_parallel_size > 1:
        raise _unproven(
            f"pipeline parallelism with the generated hooks of {class_label}",
            "no one has compared its states",
            "use --pipeline-parallel-size 1 (tensor parallelism is proven)",
        )
    passes = getattr(config.compilation_config, "pass_config", None)
    if getattr(passes, "enable_sp", False):
        raise _unproven(
            f"sequence parallelism in compiled graphs with the generated hooks of {class_label}",
            "states may be shards",
            "set pass_config.enable_sp to false",
        )
    drafted = _shapes(Path(str(config.speculative_config.draft_model_config.model)))
    for finding in findings:
        if finding.code == "EA530" and drafted and "lm_head.weight" not in drafted and not config.use_v2_model_runner:
            raise AdaptationError(
                Diagnostic(
                    finding.code,
                    finding.message,
                    expected="lm_head.weight in the draft",
                    found="none",
                    consequence="model runner V1 would leave the draft's head as it was allocated",
                    next_step="put the target's head into the draft's checkpoint",
                )
            )
        tensor = finding.code == "EA523" and config.parallel_config.tensor_parallel_size > 1
        half = finding.code == "EA524" and str(config.model_config.dtype) == "torch.float16"
        if tensor or half:
            raise AdaptationError(
                Diagnostic(
                    finding.code,
                    finding.message,
                    consequence=finding.consequence,
                    next_step="use --tensor-parallel-size 1" if tensor else "use --dtype bfloat16",
                )
            )


def mark_generated(config: Any, plan: Plan) -> None:
    """Make the generated texts part of what vLLM keys its cache of compiled graphs by.

    vLLM hashes the files that a graph was traced from, and a generated method stands in none
    (vllm 0.32.0, compilation/backends.py); `additional_config` is part of the key as well (config/vllm.py).
    """
    extra = config.additional_config
    if isinstance(extra, dict):
        texts = [getattr(edit, "source", "") for edit in plan.edits]
        extra.setdefault("eagle_adapters", {})[plan.target] = source_digest("\n".join(texts))


_OUT_OF_REACH = (
    ("vllm.model_executor.models.transformers", "0"),
    ("vllm.models.deepseek_v4", "0"),
    ("vllm.models.deepseek_v32", "N"),
)
"""Modules whose own capture misses a boundary without a word (vllm 0.32.0)."""


def check_reach(config: Any, cls: type) -> None:
    """Refuse a boundary that a class with its own capture never delivers.

    Raises:
        AdaptationError: EA531.
    """
    boundaries = getattr(config.speculative_config.draft_model_config.hf_config, _SETTLED)
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


def _unproven(what: str, why: str, next_step: str) -> AdaptationError:
    return AdaptationError(
        Diagnostic("EA526", f"EAGLE-3 states are not proven under {what}", found=why, next_step=next_step)
    )


def _name_image_token(target: Any) -> None:
    """Make the image token readable under the names that runner V1 reads (v1/spec_decode/llm_base_proposer.py)."""
    value = next((v for name in _IMAGE_FIELDS if isinstance(v := getattr(target, name, None), int)), None)
    if value is None:
        nested = getattr(target, "vision_config", None)
        value = getattr(nested, "image_token_id", None) if nested is not None else None
    if value is None:
        if getattr(target, "vision_config", None) is None and getattr(target, "audio_config", None) is None:
            return
        # A class without an image placeholder in its config: the draft never looks for one in text.
        value = -1
    for name in ("image_token_index", "media_placeholder_token_id", "image_token_id"):
        if getattr(target, name, None) is None:
            setattr(target, name, value)
