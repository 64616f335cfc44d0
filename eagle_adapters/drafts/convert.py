"""Rewrite a draft in another format: names, config and layer ids change, weights stay byte for byte.

Nothing is lost: fields and tensors that no format knows are kept, other files are copied, and a record of the original
config makes the way back exact as long as the converted config was not edited.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eagle_adapters.boundaries import Boundary, Convention, read_ids, to_ids
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.drafts.documents import refusal
from eagle_adapters.drafts.formats import FormatRules, rules_of
from eagle_adapters.drafts.header import TensorInfo
from eagle_adapters.drafts.keys import write
from eagle_adapters.drafts.reader import IDS, INDEX, Checkpoint, describe, open_checkpoint
from eagle_adapters.drafts.spec import DraftSpec, Format
from eagle_adapters.drafts.target import TargetSpec
from eagle_adapters.errors import EagleAdaptersError, UsageError

ORIGIN = "eagle_adapters_origin"
"""The field of a converted config that records the original: its format, config and irregular tensor names."""

_TOP = (
    "draft_vocab_size",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
    "target_hidden_size",
    "embed_requires_grad",
)
"""Fields that speculators keeps at the top; all others describe the layer."""

_SPECULATORS = ("speculators_model_type", "speculators_version", "speculators_config", "transformer_layer_config")
_CHUNK = 16 * 2**20


def convert_draft(
    source: str | Path,
    folder: str | Path,
    to: Format | str,
    *,
    target: TargetSpec | None = None,
    convention: Convention | None = None,
) -> DraftSpec:
    """The draft in another format, written to a new folder.

    Layer ids are read into boundaries and written in the convention of the new format's own tools, so that they mean
    the same states.

    Args:
        source: the draft: a folder, or a config.json alone (then only a config is written).
        folder: the new folder; it must not exist.
        to: the format.
        target: the target; needed when the draft has ids, and for `speculators`, whose config names the target.
        convention: how the ids are meant, when that cannot be told from them.

    Raises:
        DataError: EA700 to EA703 as `read_draft`; EA705, the draft cannot be written in this format: twice the same
            tensor, no target given, an MLA draft as speculators, a draft on the hub, or the folder exists.
        BoundaryError: EA005, the ids can be read in more than one way; EA003, the format cannot state the boundaries.
        UsageError: EA901, an unknown format.
    """
    rules = _rules(to)
    checkpoint = open_checkpoint(source)
    draft = describe(checkpoint)
    _check(checkpoint, draft, Path(folder))
    document = convert_config(draft, rules.format, target=target, convention=convention)
    names = _names(draft, rules)
    kept = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    _write(Path(folder), kept, checkpoint, names)
    return describe(open_checkpoint(folder))


def convert_config(
    draft: DraftSpec, to: Format, *, target: TargetSpec | None = None, convention: Convention | None = None
) -> dict[str, Any]:
    """The config.json of `draft` in another format; see `convert_draft`.

    Raises:
        DataError, BoundaryError: as `convert_draft`.
    """
    home = _way_back(draft, to, target)
    if home is not None:
        return home
    boundaries = _boundaries(draft, target, convention)
    flat = _flat(draft)
    flat.pop(ORIGIN, None)
    rules = rules_of(to)
    ids = None if boundaries is None else _ids(boundaries, rules, target)
    if to is Format.SPECULATORS:
        out = _nested(draft, flat, ids, target)
    else:
        out = _with_ids(flat, ids, nested=rules.nested_ids) | {"architectures": _architectures(draft)}
    if to is Format.TORCHSPEC:
        out.setdefault("_torchspec_version", "unknown")
    out[ORIGIN] = {
        "format": str(draft.format),
        "to": str(to),
        "convention": None if convention is None else str(convention),
        "document": dict(draft.document),
        "names": _irregular(draft),
    }
    return out


def _rules(to: Format | str) -> FormatRules:
    try:
        return rules_of(Format(to))
    except ValueError:
        fault = Diagnostic("EA901", "no such draft format", expected=", ".join(Format), found=str(to))
        raise UsageError(fault) from None


def _check(checkpoint: Checkpoint, draft: DraftSpec, folder: Path) -> None:
    if folder.exists():
        raise refusal("EA705", f"{folder} exists", folder, expected="a new folder")
    if checkpoint.folder is None:
        raise refusal(
            "EA705", f"{draft.name} is not on this machine", draft.name, next_step="download it and give the folder"
        )
    if draft.doubles:
        raise refusal(
            "EA705",
            "the draft has the same tensor twice, and only one can be kept",
            draft.name,
            found=", ".join(draft.doubles),
            next_step="remove the wrong ones",
        )


def _boundaries(
    draft: DraftSpec, target: TargetSpec | None, convention: Convention | None
) -> tuple[Boundary, ...] | None:
    if draft.ids is None:
        return None
    if target is None:
        raise refusal(
            "EA705",
            "the layer ids cannot be converted without the target",
            draft.name,
            expected="the target, for its number of layers",
            found=f"ids {list(draft.ids)}",
            next_step="give target=read_target(...)",
        )
    return read_ids(draft.ids, target.num_layers, declared=convention).require()


def _ids(boundaries: tuple[Boundary, ...], rules: FormatRules, target: TargetSpec | None) -> list[int]:
    assert target is not None
    return list(to_ids(boundaries, rules.convention, target.num_layers))


def _flat(draft: DraftSpec) -> dict[str, Any]:
    """The config with all fields at the top and no ids."""
    document = dict(draft.document)
    if draft.nested:
        layer = document.pop("transformer_layer_config", {})
        document = {**layer, **{key: value for key, value in document.items() if key not in _SPECULATORS}}
        # SGLang takes a null width for another width, and then shares no embedding (sglang 0.5.23, models/llama.py:910)
        if document.get("target_hidden_size", 0) is None:
            del document["target_hidden_size"]
    return _with_ids(document, None, nested=False)


def _with_ids(document: Mapping[str, Any], ids: list[int] | None, *, nested: bool) -> dict[str, Any]:
    out = {key: value for key, value in document.items() if key != IDS}
    eagle = {key: value for key, value in dict(out.get("eagle_config") or {}).items() if key not in (IDS, "layer_ids")}
    if ids is not None and nested:
        eagle[IDS] = ids
    if ids is not None and not nested:
        out[IDS] = ids
    if eagle:
        out["eagle_config"] = eagle
    else:
        out.pop("eagle_config", None)
    return out


def _nested(
    draft: DraftSpec, flat: Mapping[str, Any], ids: list[int] | None, target: TargetSpec | None
) -> dict[str, Any]:
    if draft.latent is not None:
        raise refusal(
            "EA705", "speculators has no MLA drafts", draft.name, expected="a Llama type draft", found="MLA widths"
        )
    if target is None:
        raise refusal(
            "EA705",
            "a speculators config names its target",
            draft.name,
            expected="the target",
            next_step="give target=read_target(...)",
        )
    layer = {key: value for key, value in flat.items() if key not in _TOP and key != "architectures"}
    # vLLM counts the nested ids for the width of fc, and captures the top-level ones (vllm 0.32.0)
    layer = _with_ids(layer, ids, nested=True)
    top = {key: flat[key] for key in _TOP if key in flat}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": draft.speculative_tokens or 3}],
            "verifier": {"name_or_path": target.name, "architectures": list(target.architectures)},
        },
        "draft_vocab_size": draft.draft_vocab_size,
        "norm_before_residual": draft.norms.before_residual,
        **top,
        **({} if ids is None else {IDS: ids}),
        "transformer_layer_config": layer,
    }


def _architectures(draft: DraftSpec) -> list[str]:
    """The class name that both engines know for this kind of draft."""
    return ["Eagle3DeepseekV2ForCausalLM" if draft.latent else "LlamaForCausalLMEagle3"]


def _way_back(draft: DraftSpec, to: Format, target: TargetSpec | None) -> dict[str, Any] | None:
    """The recorded original, if it had this format and converting it again gives the config at hand, unedited."""
    origin = draft.document.get(ORIGIN)
    if not isinstance(origin, dict) or origin.get("format") != str(to) or not isinstance(origin.get("document"), dict):
        return None
    document: dict[str, Any] = origin["document"]
    tensors = [*draft.tensors.values(), *draft.unknown]
    try:
        again = describe(Checkpoint(draft.name, draft.folder, draft.name, document, tensors, dict(_evidence(to))))
        meant = None if origin.get("convention") is None else Convention(origin["convention"])
        forward = convert_config(again, Format(origin.get("to", "")), target=target, convention=meant)
    except (EagleAdaptersError, ValueError):
        return None  # the record was edited, or needs a target that was not given
    here = {key: value for key, value in draft.document.items() if key != ORIGIN}
    return document if {key: value for key, value in forward.items() if key != ORIGIN} == here else None


def _evidence(to: Format) -> Iterator[tuple[str, str]]:
    """What tells the format where its config alone does not."""
    if to is Format.TORCHSPEC:
        yield "torchspec_version", "unknown"


def _irregular(draft: DraftSpec) -> dict[str, str]:
    """Canonical name -> name in the file, where the layout alone does not give it."""
    layout = draft.layout
    if layout is None:
        return {}
    return {name: tensor.name for name, tensor in draft.tensors.items() if write(name, layout) != tensor.name}


def _names(draft: DraftSpec, rules: FormatRules) -> dict[str, TensorInfo]:
    """New name -> tensor."""
    origin = draft.document.get(ORIGIN)
    home = isinstance(origin, dict) and origin.get("format") == str(rules.format)
    old = origin.get("names") if home and isinstance(origin, dict) else None
    old = old if isinstance(old, dict) else {}
    named = {str(old.get(name, write(name, rules.layout))): tensor for name, tensor in draft.tensors.items()}
    return named | {tensor.name: tensor for tensor in draft.unknown}


def _write(folder: Path, config: str, checkpoint: Checkpoint, names: Mapping[str, TensorInfo]) -> None:
    """Write everything beside the new folder, then give it its name: a stopped conversion leaves nothing behind."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        (partial / "config.json").write_text(config, "utf-8")
        if names:
            _write_tensors(partial / "model.safetensors", names, checkpoint.metadata)
        source = checkpoint.folder
        for path in sorted(source.iterdir()) if source is not None and names else ():
            if path.is_file() and path.suffix != ".safetensors" and path.name not in ("config.json", INDEX):
                shutil.copyfile(path, partial / path.name)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_tensors(path: Path, names: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
    at = 0
    for name, tensor in names.items():
        stop = at + tensor.stop - tensor.start
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, stop]}
        at = stop
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for tensor in names.values():
            assert tensor.file is not None
            with tensor.file.open("rb") as stream:
                stream.seek(tensor.start)
                left = tensor.stop - tensor.start
                while left:
                    chunk = stream.read(min(left, _CHUNK))
                    if not chunk:
                        raise refusal("EA701", f"{tensor.file.name} became shorter while it was read", tensor.file)
                    out.write(chunk)
                    left -= len(chunk)
