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

from eagle_adapters.backends.vllm.modes import check_modes
from eagle_adapters.backends.vllm.weights import Shapes, shapes
from eagle_adapters.boundaries import Boundary, Convention, Reading, read_ids
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError, BoundaryError, DataError

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


def settled(config: Any) -> list[int]:
    """The boundaries that `settle` wrote into a `VllmConfig`."""
    found: list[int] = getattr(config.speculative_config.draft_model_config.hf_config, _SETTLED)
    return found


def settle(config: Any) -> None:
    """Check what a `VllmConfig` asks for, and write the boundaries and the names that the engine reads into it.

    Does nothing without an eagle3 speculative config; a second call changes nothing.

    Raises:
        BoundaryError: EA001, EA002, EA004, EA005 of the layer ids; EA527.
        AdaptationError: EA520, EA526, EA528, EA529, EA533.
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
    check_modes(config)
    num_layers = int(config.model_config.get_total_num_hidden_layers())
    ids = _ids(draft)
    reading = read_ids(
        ids,
        num_layers,
        declared=_declared(),
        registered=_registered(str(speculation.draft_model_config.model), ids, num_layers),
    )
    boundaries = _decided(reading)
    weights = shapes(Path(str(speculation.draft_model_config.model)))
    _check_width(draft, config.model_config, boundaries, weights)
    _check_embedding(draft, config.model_config, weights)
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


def _check_width(draft: Any, target: Any, boundaries: tuple[Boundary, ...], weights: Shapes) -> None:
    """Compare `fc.weight` with the boundaries; a draft that is not in a local folder is checked by its config alone."""
    stated = getattr(draft, "num_aux_hidden_states", None)
    width = getattr(draft, "target_hidden_size", None) or target.get_hidden_size()
    found = None if stated is None or stated == len(boundaries) else f"num_aux_hidden_states: {stated}"
    shape = weights.get("fc.weight")
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


def _check_embedding(draft: Any, target: Any, weights: Shapes) -> None:
    """Refuse a draft without an embedding where the target's is of another width, as OPT's with a projection is.

    vLLM keeps the draft's own then, which nothing was loaded into (vllm 0.32.0, v1/spec_decode/llm_base_proposer.py).
    """
    own = getattr(draft, "hidden_size", None)
    width = getattr(target.hf_config, "word_embed_proj_dim", None) or target.get_hidden_size()
    if weights and "embed_tokens.weight" not in weights and own not in (None, width):
        raise AdaptationError(
            Diagnostic(
                "EA533",
                "the draft has no embedding, and the target's does not fit it",
                expected=f"embed_tokens.weight of width {own} in the draft",
                found=f"none, and an embedding of width {width} in the target",
                consequence="the draft would read the weights that its embedding was allocated with",
                next_step="put an embedding of the draft's width into its checkpoint",
            )
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
