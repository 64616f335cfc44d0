"""Which tool wrote a draft checkpoint: one recogniser per format, tried from the most telling to the plainest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_adapters.boundaries import Convention
from eagle_adapters.drafts.documents import refusal
from eagle_adapters.drafts.keys import Layout
from eagle_adapters.drafts.spec import Format

_MODELOPT_FIELDS = (
    "use_input_layernorm_in_first_layer",
    "use_last_layernorm",
    "use_mtp_layernorm",
    "next_layer_regular",
    "parallel_draft_step",
)
_OTHER_KINDS = {
    "dflash_config": "DFlash",
    "dspark_config": "DSpark",
    "dspark_target_layer_ids": "DSpark",
    "medusa_num_heads": "Medusa",
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a recogniser looks at.

    Attributes:
        document: the config.json.
        metadata: the free metadata of the weight files.
        layout: how the tensors are named, None without weights.
        names: the names of the tensors.
    """

    document: Mapping[str, Any]
    metadata: Mapping[str, str]
    layout: Layout | None
    names: Sequence[str]

    @property
    def architectures(self) -> tuple[str, ...]:
        """The class names, whatever the config holds there."""
        value = self.document.get("architectures")
        return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()

    @property
    def eagle_config(self) -> Mapping[str, Any]:
        """The nested `eagle_config`, `{}` when there is none."""
        value = self.document.get("eagle_config")
        return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class FormatRules:
    """One format: how it is recognised, and how it is written.

    Attributes:
        format: its name.
        recognise: whether a checkpoint has it.
        layout: the tensor names it writes.
        convention: what its layer ids mean where its own tools write them.
        nested_ids: ids stand in `eagle_config`, not at the top.
    """

    format: Format
    recognise: Callable[[Evidence], bool]
    layout: Layout
    convention: Convention
    nested_ids: bool = True


def _speculators(seen: Evidence) -> bool:
    return any(
        key in seen.document for key in ("speculators_model_type", "speculators_config", "transformer_layer_config")
    )


def _torchspec(seen: Evidence) -> bool:
    return "_torchspec_version" in seen.document or "torchspec_version" in seen.metadata


def _automodel(seen: Evidence) -> bool:
    return seen.layout is Layout.PREFIXED or any(name.startswith("LlamaEagle3") for name in seen.architectures)


def _modelopt(seen: Evidence) -> bool:
    return any(key in seen.eagle_config for key in _MODELOPT_FIELDS)


def _angelslim(seen: Evidence) -> bool:
    return "modal_type" in seen.document or "Eagle3LlamaForCausalLM" in seen.architectures


def _specforge(seen: Evidence) -> bool:
    return any(name.endswith("ForCausalLMEagle3") for name in seen.architectures)


def _eagle(seen: Evidence) -> bool:
    """The plainest: an `Eagle3*` class, or one decoder layer with `fc`, or with a reduced vocabulary."""
    if any(name.startswith("Eagle3") for name in seen.architectures):
        return True
    fused = any(name in ("fc.weight", "model.fc.weight") for name in seen.names)
    reduced = any(seen.document.get(key) is not None for key in ("draft_vocab_size", "truncated_vocab_size"))
    return fused or (seen.document.get("num_hidden_layers") == 1 and (reduced or bool(seen.eagle_config)))


RULES: tuple[FormatRules, ...] = (
    FormatRules(Format.SPECULATORS, _speculators, Layout.LAYERS, Convention.BOUNDARY, nested_ids=False),
    FormatRules(Format.TORCHSPEC, _torchspec, Layout.LAYERS, Convention.BOUNDARY),
    FormatRules(Format.AUTOMODEL, _automodel, Layout.PREFIXED, Convention.BOUNDARY),
    FormatRules(Format.MODELOPT, _modelopt, Layout.LAYERS, Convention.LAYER_OUTPUT),
    FormatRules(Format.ANGELSLIM, _angelslim, Layout.MIDLAYER, Convention.LAYER_OUTPUT),
    FormatRules(Format.SPECFORGE, _specforge, Layout.MIDLAYER, Convention.LAYER_OUTPUT),
    FormatRules(Format.EAGLE, _eagle, Layout.MIDLAYER, Convention.BOUNDARY),
)
"""Every format, in the order in which they are tried."""


def rules_of(wanted: Format) -> FormatRules:
    """The rules of one format."""
    return next(rules for rules in RULES if rules.format is wanted)


def recognise(seen: Evidence, path: Path | str) -> Format:
    """The format of a checkpoint.

    The convention of the format is *not* evidence for the ids of a particular checkpoint: the same tools have written
    both kinds, so ids are read by `eagle_adapters.boundaries.read_ids` alone.

    Raises:
        DataError: EA702, it is no EAGLE-3 draft: another kind of draft, or a whole model.
    """
    other = _other_kind(seen)
    if other is not None:
        raise refusal("EA702", "this is not an EAGLE-3 draft", path, expected="an EAGLE-3 draft", found=other)
    for rules in RULES:
        if rules.recognise(seen):
            return rules.format
    raise refusal(
        "EA702",
        "this is not an EAGLE-3 draft",
        path,
        expected="an Eagle3 class, speculators_config, draft_vocab_size, or a tensor fc.weight",
        found=f"architectures {list(seen.architectures)}",
        next_step="check that the target and the draft were not exchanged",
    )


def _other_kind(seen: Evidence) -> str | None:
    kind = seen.document.get("speculators_model_type")
    if kind is not None and kind != "eagle3":
        return f"speculators_model_type {kind!r}"[:80]
    for field, name in _OTHER_KINDS.items():
        if seen.document.get(field) is not None:
            return f"a {name} draft ({field})"
    for name in seen.architectures:
        if (name.endswith("ForCausalLMEagle") or name.startswith("Eagle")) and not name.startswith(
            ("Eagle3", "Eagle2")
        ):
            return f"an EAGLE-1 draft ({name})"
    return None
