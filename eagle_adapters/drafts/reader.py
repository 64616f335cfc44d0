"""`read_draft`: one `DraftSpec` from any published format. Only headers are read, never a pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle_adapters.drafts import hub
from eagle_adapters.drafts.documents import INDEX_LIMIT, is_folder, parse_json, read_bytes, read_config, refusal
from eagle_adapters.drafts.fields import Fields, read_rope
from eagle_adapters.drafts.formats import Evidence, recognise
from eagle_adapters.drafts.header import TensorInfo, read_header
from eagle_adapters.drafts.keys import canonical, layout_of
from eagle_adapters.drafts.spec import Attention, Claim, DraftSpec, Format, Latent, Norms, Weights

IDS = "eagle_aux_hidden_state_layer_ids"
"""The field that holds layer ids, at the top or in `eagle_config`."""

INDEX = "model.safetensors.index.json"
_MAX_SHARDS = 4096


@dataclass(slots=True)
class Checkpoint:
    """A config.json and the tensors beside it.

    Attributes:
        name: what was asked for.
        folder: its folder, None for the hub.
        path: its config.json.
        document: the content of config.json.
        tensors: every tensor of every file, in order; a name may come twice.
        metadata: the free metadata of the weight files.
        side_files: weight-like files that nothing here opens.
    """

    name: str
    folder: Path | None
    path: str
    document: Mapping[str, Any]
    tensors: list[TensorInfo] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    side_files: tuple[Path, ...] = ()


def read_draft(source: str | Path) -> DraftSpec:
    """The `DraftSpec` of a draft checkpoint.

    Args:
        source: a folder, a config.json alone, or a hub name (with the `hub` extra).

    Raises:
        DataError: EA700 a file cannot be read, EA701 malformed weights, EA702 not an EAGLE-3 draft, EA703 fields are
            missing or have impossible values, EA704 the hub cannot be used.
    """
    return describe(open_checkpoint(source))


def open_checkpoint(source: str | Path) -> Checkpoint:
    """The config and the tensor headers of a folder, of a config.json alone, or of a hub name.

    Raises:
        DataError: EA700, EA701, EA704 as `read_draft`.
    """
    path = Path(source)
    if is_folder(path):
        checkpoint = Checkpoint(str(source), path, str(path / "config.json"), read_config(path / "config.json"))
        for shard in _shards(path):
            header = read_header(shard)
            checkpoint.tensors.extend(header.tensors.values())
            checkpoint.metadata.update(header.metadata)
        checkpoint.side_files = tuple(
            sorted(p for p in path.iterdir() if p.suffix in (".pt", ".pth", ".bin", ".pkl", ".ckpt"))
        )
        return checkpoint
    if hub.is_name(source):
        return Checkpoint(str(source), None, f"{source}/config.json", *hub.fetch(str(source)))
    if path.suffix == ".json" or os.path.exists(path):
        if path.suffix != ".json":
            raise refusal(
                "EA700", f"{path.name} is no checkpoint", path, expected="a folder, a config.json, or a hub name"
            )
        return Checkpoint(str(source), path.parent, str(path), read_config(path))
    raise refusal(
        "EA700",
        f"{source} was not found",
        path,
        expected="a folder with config.json, a config.json, or a hub name `owner/name`",
        found="nothing there",
    )


def describe(checkpoint: Checkpoint) -> DraftSpec:
    """The `DraftSpec` of an opened checkpoint.

    Raises:
        DataError: EA702, EA703 as `read_draft`.
    """
    document, path = checkpoint.document, checkpoint.path
    names = [tensor.name for tensor in checkpoint.tensors]
    layout = layout_of(names) if names else None
    found = recognise(Evidence(document, checkpoint.metadata, layout, names), path)
    top = Fields(document, path)
    layer = top.inside("transformer_layer_config") if found is Format.SPECULATORS else top
    eagle = top.inside("eagle_config")
    tensors, doubles, unknown = _sort(checkpoint.tensors)

    hidden = layer.need("hidden_size")
    heads = layer.need("num_attention_heads")
    target_claim = _first(("target_hidden_size", top.count("target_hidden_size")), ("hidden_size", hidden))
    ids = _id_claims(top, layer, eagle)
    uses_states = eagle.flag("use_aux_hidden_state") is not False
    aux = _aux_claims(top, ids, tensors.get("fc.weight"), target_claim.value)
    vocabulary = layer.need("vocab_size")
    stated_vocabulary = top.count("draft_vocab_size", "truncated_vocab_size")
    latent = _latent(layer)
    spec = DraftSpec(
        name=checkpoint.name,
        folder=checkpoint.folder,
        format=found,
        layout=layout,
        architectures=top.texts("architectures"),
        model_type=layer.text("model_type"),
        attention=Attention.MLA if latent else Attention.GQA,
        latent=latent,
        hidden_size=hidden,
        target_hidden_size=target_claim.value,
        target_hidden_where=target_claim.where,
        intermediate_size=layer.need("intermediate_size_mlp", "intermediate_size"),
        num_layers=layer.need("num_hidden_layers", default=1),
        num_heads=heads,
        num_kv_heads=layer.need("num_key_value_heads", default=heads),
        head_dim=layer.need("head_dim", default=max(hidden // heads, 1)),
        norm_eps=layer.number("rms_norm_eps", 1e-6) or 1e-6,
        vocab_size=vocabulary,
        draft_vocab_size=stated_vocabulary or _rows(tensors, "lm_head.weight", "d2t") or vocabulary,
        draft_vocab_stated=stated_vocabulary is not None,
        uses_states=uses_states,
        num_aux=(aux[0].value if aux else 3) if uses_states else 0,
        aux_claims=aux,
        ids=ids[0].value if ids else None,
        id_claims=ids,
        norms=_norms(top, layer, eagle),
        rope=read_rope(layer),
        embedding=_embedding(tensors),
        head=_head(tensors, layer.flag("tie_word_embeddings") or top.flag("tie_word_embeddings") or False),
        tensors=tensors,
        doubles=doubles,
        unknown=tuple(unknown),
        side_files=checkpoint.side_files,
        verifier=_verifier(top),
        speculative_tokens=_speculative_tokens(top),
        config=layer.values,
        document=document,
    )
    top.check()
    return spec


def _shards(folder: Path) -> list[Path]:
    index = folder / INDEX
    if not index.exists() and not index.is_symlink():
        return sorted(folder.glob("*.safetensors"))
    weight_map = parse_json(read_bytes(index, INDEX_LIMIT), index).get("weight_map")
    files = set(weight_map.values()) if isinstance(weight_map, dict) and _plain(weight_map) else None
    if not files or len(files) > _MAX_SHARDS:
        raise refusal(
            "EA701", f"{index.name} has no usable weight_map", index, expected="tensor name -> file in this folder"
        )
    return [folder / name for name in sorted(files)]


def _plain(weight_map: Mapping[str, Any]) -> bool:
    """Whether every file is a plain name: an index must not reach out of its folder."""
    return all(
        isinstance(name, str) and name.endswith(".safetensors") and Path(name).name == name and "\0" not in name
        for name in weight_map.values()
    )


def _sort(
    tensors: list[TensorInfo],
) -> tuple[dict[str, TensorInfo], dict[str, list[TensorInfo]], list[TensorInfo]]:
    known: dict[str, TensorInfo] = {}
    doubles: dict[str, list[TensorInfo]] = {}
    unknown: list[TensorInfo] = []
    for tensor in tensors:
        name = canonical(tensor.name)
        if name is None:
            unknown.append(tensor)
        elif name in known:
            doubles.setdefault(name, []).append(tensor)
        else:
            known[name] = tensor
    return known, doubles, unknown


def _first(*claims: tuple[str, int | None]) -> Claim:
    return next(Claim(value, where) for where, value in claims if value is not None)


def _id_claims(top: Fields, layer: Fields, eagle: Fields) -> tuple[Claim, ...]:
    """Every statement of ids, in the order in which vLLM's V1 runner looks (vllm 0.32.0, gpu_model_runner.py)."""
    places = [(top, IDS, IDS), (eagle, IDS, f"eagle_config.{IDS}"), (eagle, "layer_ids", "eagle_config.layer_ids")]
    if layer is not top:
        inner = layer.inside("eagle_config")
        places.insert(1, (layer, IDS, f"transformer_layer_config.{IDS}"))
        places.append((inner, IDS, f"transformer_layer_config.eagle_config.{IDS}"))
    found = ((fields.integers(name), where) for fields, name, where in places)
    return tuple(Claim(ids, where) for ids, where in found if ids is not None)


def _aux_claims(top: Fields, ids: tuple[Claim, ...], fc: TensorInfo | None, target_hidden: int) -> tuple[Claim, ...]:
    claims: list[Claim] = []
    if fc is not None and len(fc.shape) == 2 and fc.shape[1] >= target_hidden and fc.shape[1] % target_hidden == 0:
        claims.append(Claim(fc.shape[1] // target_hidden, f"{fc.name} {list(fc.shape)} / {target_hidden}"))
    stated = top.count("num_aux_hidden_states")
    if stated is not None:
        claims.append(Claim(stated, "num_aux_hidden_states"))
    claims.extend(Claim(len(claim.value), claim.where) for claim in ids)
    return tuple(claims)


def _norms(top: Fields, layer: Fields, eagle: Fields) -> Norms:
    places = [(eagle, "eagle_config."), (top, ""), (layer, "transformer_layer_config.")]
    names = {
        "before_residual": ("norm_before_residual",),
        "before_fc": ("norm_before_fc",),
        "per_state": ("fc_norm", "use_aux_norm"),
        "output": ("norm_output",),
    }
    values: dict[str, bool] = {}
    stated: dict[str, str] = {}
    for key, aliases in names.items():
        for fields, prefix in places if layer is not top else places[:2]:
            for name in aliases:
                value = fields.flag(name)
                if value is not None and key not in values:
                    values[key], stated[key] = value, prefix + name
    return Norms(**{key: values.get(key, False) for key in names}, stated=stated)


def _latent(layer: Fields) -> Latent | None:
    rank = layer.count("kv_lora_rank")
    if rank is None:
        return None
    return Latent(
        q_lora_rank=layer.count("q_lora_rank"),
        kv_lora_rank=rank,
        qk_nope_head_dim=layer.need("qk_nope_head_dim"),
        qk_rope_head_dim=layer.need("qk_rope_head_dim"),
        v_head_dim=layer.need("v_head_dim"),
    )


def _rows(tensors: Mapping[str, TensorInfo], *names: str) -> int | None:
    found = (tensors[name].shape for name in names if name in tensors)
    return next((shape[0] for shape in found if shape and shape[0] > 0), None)


def _embedding(tensors: Mapping[str, TensorInfo]) -> Weights:
    if not tensors:
        return Weights.UNKNOWN
    return Weights.OWN if "embed_tokens.weight" in tensors else Weights.TARGET


def _head(tensors: Mapping[str, TensorInfo], tied: bool) -> Weights:
    if not tensors:
        return Weights.TIED if tied else Weights.UNKNOWN
    if "lm_head.weight" in tensors:
        return Weights.OWN
    return Weights.TIED if tied else Weights.TARGET


def _verifier(top: Fields) -> str | None:
    return top.inside("speculators_config").inside("verifier").text("name_or_path")


def _speculative_tokens(top: Fields) -> int | None:
    """The steps of the proposal method that vLLM takes: the first (vllm 0.32.0, configs/speculators/base.py)."""
    methods = top.inside("speculators_config").values.get("proposal_methods")
    first = methods[0] if isinstance(methods, list) and methods else None
    return Fields(first, top.where).count("speculative_tokens") if isinstance(first, dict) else None
