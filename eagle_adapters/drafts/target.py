"""What a draft must fit: the language model inside a target's config, its vocabulary, positions and token ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_adapters.drafts import hub
from eagle_adapters.drafts.defaults import complete_config
from eagle_adapters.drafts.documents import (
    CONFIG_LIMIT,
    INDEX_LIMIT,
    is_folder,
    parse_json,
    read_bytes,
    read_config,
    refusal,
)
from eagle_adapters.drafts.fields import Fields, read_rope
from eagle_adapters.drafts.header import TensorInfo, read_header
from eagle_adapters.drafts.reader import INDEX
from eagle_adapters.drafts.spec import Rope
from eagle_adapters.errors import DataError

_TEXT_KEYS = (
    "thinker_config",
    "text_config",
    "language_config",
    "llm_config",
    "language_model_config",
    "lm_config",
    "language_model",
    "llm",
)
"""Where multimodal configs keep their language model, in the order of trust."""

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_EMBEDDING = re.compile(r"(?:.*\.)?(?:embed_tokens|word_embeddings|wte|tok_embeddings)\.weight")
_HEAD = re.compile(r"(?:.*\.)?lm_head\.weight")
_ENDS = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight", "tok_embeddings.weight", "lm_head.weight")
_OTHER_TOWER = re.compile(r"(?:^|\.)(?:vision|visual|audio|talker|code2wav|image|mtp)")
_TOKEN = re.compile(
    r"(?:image|video|audio|media|vision|img|speech|frame)\w*_token_(?:id|index)|media_placeholder_token_id|img_context_token_id"
)
_ROTATION = re.compile(r"quarot|spinquant|hadamard|rotat(?:ed?|ion)(?!ary)|transform_config", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The language model of a target, read from its config.

    Attributes:
        name: what the caller asked for.
        folder: its folder, or None.
        architectures: the class names of the outer config; the engine resolves the first it knows.
        text_architectures: those of the language model's own config.
        model_type: the outer `model_type`.
        text_path: where the language model's config stands, `config.json` for a plain model.
        num_layers: N.
        hidden_size: width of a state.
        vocab_size: rows of the embedding, or None when nothing tells.
        rope: rotary positions.
        tokenizer_size: number of tokens of the tokenizer beside it, or None.
        media_tokens: path -> token id that stands for images, video or audio.
        multimodal: whether it has a tower besides the language model.
        quantisation: the quantisation method, or None.
        rotation: the field that says the states are rotated, or None.
        embedding: the embedding, or None when no weights are there.
        head: the head, or None.
        tied: whether head and embedding are one.
        document: the whole config.json.
    """

    name: str
    folder: Path | None
    architectures: tuple[str, ...]
    text_architectures: tuple[str, ...]
    model_type: str | None
    text_path: str
    num_layers: int
    hidden_size: int
    vocab_size: int | None
    rope: Rope
    tokenizer_size: int | None
    media_tokens: Mapping[str, int]
    multimodal: bool
    quantisation: str | None
    rotation: str | None
    embedding: TensorInfo | None
    head: TensorInfo | None
    tied: bool
    document: Mapping[str, Any]

    @property
    def engine_names(self) -> tuple[str, ...]:
        """The class names, and their spelling in the engines: transformers writes `Kimi_K25...`, they `KimiK25...`."""
        return (*self.architectures, *(name.replace("_", "") for name in self.architectures if "_" in name))


def read_target(source: str | Path) -> TargetSpec:
    """The `TargetSpec` of a target.

    Args:
        source: a folder, a config.json alone, or a hub name (with the `hub` extra). No weights are needed; when they
            are there, only the headers of the embedding's and the head's files are read.

    Raises:
        DataError: EA700, EA701, EA704 as for drafts; EA774, no language model was found in the config.
    """
    path = Path(source)
    if hub.is_name(source):
        document, tensors = hub.fetch(str(source))
        return describe_target(str(source), None, document, {tensor.name: tensor for tensor in tensors})
    if is_folder(path):
        return describe_target(str(source), path, read_config(path / "config.json"), _ends(path))
    if path.suffix != ".json":
        raise refusal("EA700", f"{source} is no target", path, expected="a folder, a config.json, or a hub name")
    return describe_target(str(source), None, read_config(path), {})


def describe_target(
    name: str, folder: Path | None, document: Mapping[str, Any], tensors: Mapping[str, TensorInfo]
) -> TargetSpec:
    """The `TargetSpec` of a config at hand, with the tensors that are known.

    Raises:
        DataError: EA703, EA774 as `read_target`.
    """
    where = f"{name}: config.json"
    text_path, text = _find_text(document, where)
    top = Fields(document, where)
    inner = Fields(text, where if text is document else f"{where}: {text_path}")
    top.faults = inner.faults
    embedding = _pick(tensors, _EMBEDDING)
    rope = read_rope(inner)
    quantisation = _quantisation(document) or _quantisation(text)
    spec = TargetSpec(
        name=name,
        folder=folder,
        architectures=top.texts("architectures"),
        text_architectures=inner.texts("architectures"),
        model_type=top.text("model_type"),
        text_path=text_path,
        num_layers=inner.need(*_LAYERS),
        hidden_size=inner.need(*_HIDDEN),
        vocab_size=inner.count("vocab_size", default=top.count("vocab_size", default=_rows(embedding))),
        rope=rope,
        tokenizer_size=None if folder is None else _tokenizer_size(folder),
        media_tokens=dict(_media_tokens(document)),
        multimodal=text is not document or any(_is_tower(key, value) for key, value in document.items()),
        quantisation=quantisation,
        rotation=_rotation(document),
        embedding=embedding,
        head=_pick(tensors, _HEAD),
        tied=bool(text.get("tie_word_embeddings", document.get("tie_word_embeddings", False))),
        document=document,
    )
    inner.check()
    return spec


def _find_text(document: Mapping[str, Any], where: str) -> tuple[str, Mapping[str, Any]]:
    found = _search(document, "config.json") or _search_completed(document)
    if found is None:
        raise refusal(
            "EA774",
            "the target's config has no language model in it",
            where,
            expected=f"{_LAYERS[0]} and {_HIDDEN[0]}, at the top or in one of {', '.join(_TEXT_KEYS)}",
            found=f"fields {sorted(document)[:20]}",
            next_step="give a config.json that states the layers and the width of the language model, or install "
            "transformers, which knows the defaults of its model_type",
        )
    return found


def _search(config: Mapping[str, Any], path: str, depth: int = 0) -> tuple[str, Mapping[str, Any]] | None:
    """The innermost language model: a nested one wins over the fields that wrappers repeat at the top."""
    if depth < 5:
        for key in _TEXT_KEYS:
            inner = config.get(key)
            if isinstance(inner, dict):
                found = _search(inner, key if depth == 0 else f"{path}.{key}", depth + 1)
                if found is not None:
                    return found
    complete = any(config.get(k) for k in _LAYERS) and any(config.get(k) for k in _HIDDEN)
    return (path, config) if complete else None


def _search_completed(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """A nested language model that states its type and leaves its size to the defaults of it."""
    for key in _TEXT_KEYS:
        inner = document.get(key)
        completed = complete_config(inner) if isinstance(inner, dict) else None
        if completed is not None and _search(completed, key) is not None:
            return f"{key}, with the defaults of transformers for {completed['model_type']}", completed
    return None


def _is_tower(key: str, value: Any) -> bool:
    return isinstance(value, dict) and re.match(r"vision|visual|audio|image|vit|mm_", key) is not None


def _media_tokens(config: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        if isinstance(value, dict) and depth < 3 and not key.startswith("talker"):
            yield from _media_tokens(value, f"{path}{key}.", depth + 1)
        elif isinstance(value, int) and not isinstance(value, bool) and value >= 0 and _TOKEN.fullmatch(key):
            yield path + key, value


def _quantisation(config: Mapping[str, Any]) -> str | None:
    found = config.get("quantization_config")
    if not isinstance(found, dict):
        return None
    kind = found.get("quant_method") or found.get("quant_algo") or found.get("format")
    return kind if isinstance(kind, str) else "unnamed"


def _rotation(document: Mapping[str, Any]) -> str | None:
    """A field that tells of rotated weights (QuaRot, SpinQuant, compressed-tensors `transform_config`)."""
    found = document.get("quantization_config")
    if not isinstance(found, dict):
        return None
    for key, value in found.items():
        if value and (_ROTATION.search(key) or (isinstance(value, str) and _ROTATION.search(value))):
            return f"quantization_config.{key}"
    return None


def _ends(folder: Path) -> dict[str, TensorInfo]:
    """The embedding and the head, from the headers of the files that hold them; nothing when there are no weights."""
    index = folder / INDEX
    if index.is_file():
        weight_map = parse_json(read_bytes(index, INDEX_LIMIT), index).get("weight_map")
        names = weight_map if isinstance(weight_map, dict) else {}
        # the cheap test first: a large model has 100,000 names
        ends = [
            name for name in names if name.endswith(_ENDS) and (_EMBEDDING.fullmatch(name) or _HEAD.fullmatch(name))
        ]
        wanted = {names[name] for name in ends if isinstance(names[name], str)}
        files = [folder / file for file in sorted(wanted) if Path(file).name == file]
    else:
        files = sorted(folder.glob("*.safetensors"))[:1]
    out: dict[str, TensorInfo] = {}
    for file in files:
        if file.is_file():  # a partly downloaded target has an index and no shards
            out.update(read_header(file).tensors)
    return out


def _pick(tensors: Mapping[str, TensorInfo], pattern: re.Pattern[str]) -> TensorInfo | None:
    found = [name for name in tensors if pattern.fullmatch(name) and not _OTHER_TOWER.search(name)]
    return tensors[min(found, key=len)] if found else None


def _rows(tensor: TensorInfo | None) -> int | None:
    return tensor.shape[0] if tensor is not None and len(tensor.shape) == 2 else None


def _tokenizer_size(folder: Path) -> int | None:
    """The number of tokens: one more than the highest id of tokenizer.json, its added tokens included."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        document = parse_json(read_bytes(path, 16 * CONFIG_LIMIT), path)
    except DataError:
        return None  # a tokenizer this library cannot read says nothing about the draft
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = [value for value in vocabulary.values() if isinstance(value, int)] if isinstance(vocabulary, dict) else []
    if isinstance(vocabulary, list):
        ids = [len(vocabulary) - 1]
    added = document.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            ids.append(token["id"])
    return max(ids) + 1 if ids else None
