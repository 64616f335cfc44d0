"""Files that were broken, or made to break something: refused with a code, never opened as a pickle, never a crash."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_adapters.drafts.check import check_draft
from eagle_adapters.drafts.header import HEADER_LIMIT, read_header
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.drafts.target import read_target
from eagle_adapters.errors import DataError, EagleAdaptersError
from eagle_adapters.testing import checkpoints as small

Make = Callable[..., Path]


def refused(code: str, call: Callable[..., object], *args: Any) -> str:
    with pytest.raises(DataError) as caught:
        call(*args)
    assert {d.code for d in caught.value.diagnostics} == {code}
    return str(caught.value)


def outcome(call: Callable[..., object], *args: Any) -> str | None:
    """The code of the error, or None; anything but an error of this library gets out."""
    try:
        call(*args)
    except EagleAdaptersError as error:
        return error.code
    return None


def file_of(folder: Path, header: object, values: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + values)
    return path


def entry(start: int, stop: int, shape: list[Any] | None = None, dtype: object = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [stop - start] if shape is None else shape, "data_offsets": [start, stop]}


HEADERS: dict[str, tuple[object, bytes, int | None]] = {
    "empty file": (b"", b"", 0),
    "header longer than the file": ({"a": entry(0, 4)}, bytes(4), 10_000),
    "header of exabytes": ({}, b"", 2**63),
    "not JSON": (b"{", b"", None),
    "an array": ([], b"", None),
    "not UTF-8": (b'{"\xff": 1}', b"", None),
    "NaN": (b'{"a": NaN}', b"", None),
    "double names": (b'{"a": 1, "a": 2}', b"", None),
    "deep nesting": (b'{"a":' + b"[" * 200_000, b"", None),
    "integer of 5000 digits": (b'{"a": ' + b"9" * 5000 + b"}", b"", None),
    "entry is a number": ({"a": 3}, b"", None),
    "extra keys": ({"a": entry(0, 4) | {"code": "import os"}}, bytes(4), None),
    "unknown dtype": ({"a": entry(0, 4, dtype="PICKLE")}, bytes(4), None),
    "dtype is a list": ({"a": entry(0, 4, dtype=["U8"])}, bytes(4), None),
    "negative dimension": ({"a": entry(0, 4, [-4])}, bytes(4), None),
    "boolean dimension": ({"a": entry(0, 1, [True])}, bytes(1), None),
    "float dimension": ({"a": entry(0, 4, [4.0])}, bytes(4), None),
    "huge dimension": ({"a": entry(0, 4, [2**60])}, bytes(4), None),
    "shape of other size": ({"a": entry(0, 4, [5])}, bytes(4), None),
    "too many dimensions": ({"a": entry(0, 1, [1] * 100)}, bytes(1), None),
    "offsets reversed": ({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 0]}}, bytes(4), None),
    "one offset": ({"a": {"dtype": "U8", "shape": [4], "data_offsets": [4]}}, bytes(4), None),
    "huge offsets": ({"a": {"dtype": "U8", "shape": [4], "data_offsets": [2**70, 2**70 + 4]}}, bytes(4), None),
    "overlap": ({"a": entry(0, 4), "b": entry(2, 6)}, bytes(6), None),
    "same bytes twice": ({"a": entry(0, 4), "b": entry(0, 4)}, bytes(4), None),
    "hole": ({"a": entry(0, 4), "b": entry(6, 8)}, bytes(8), None),
    "past the end": ({"a": entry(0, 40)}, bytes(4), None),
    "bytes at the end": ({"a": entry(0, 4)}, bytes(9), None),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, b"", None),
    "metadata is a list": ({"__metadata__": []}, b"", None),
}


@pytest.mark.parametrize("name", HEADERS)
def test_malformed_headers_are_refused(name: str, tmp_path: Path) -> None:
    header, values, length = HEADERS[name]
    message = refused("EA701", read_header, file_of(tmp_path, header, values, length))
    assert "model.safetensors" in message


def test_well_formed_corner_cases_are_read(tmp_path: Path) -> None:
    header = {"__metadata__": {}, "none": entry(0, 0), "scalar": entry(0, 1, []), "half": entry(1, 3, [4], "F4")}
    assert set(read_header(file_of(tmp_path, header, bytes(3))).tensors) == {"none", "scalar", "half"}
    assert read_header(file_of(tmp_path, {})).tensors == {}


def test_a_header_just_over_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.safetensors"
    with path.open("wb") as stream:
        stream.write((HEADER_LIMIT + 1).to_bytes(8, "little"))
        stream.truncate(HEADER_LIMIT + 100)
    refused("EA701", read_header, path)


@given(st.binary(max_size=300))
def test_random_bytes_never_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("random") / "model.safetensors"
    path.write_bytes(data)
    assert outcome(read_header, path) in (None, "EA701")


@given(
    at=st.integers(min_value=0, max_value=1200),
    value=st.integers(min_value=0, max_value=255),
)
def test_a_flipped_byte_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, at: int, value: int) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    path = small.write_safetensors(folder / "model.safetensors", small.llama_tensors())
    data = bytearray(path.read_bytes())
    data[at] = value
    path.write_bytes(data)
    (folder / "config.json").write_text(json.dumps(small.llama_config()))
    assert outcome(read_draft, folder) in (None, "EA701", "EA702")


# ---------------------------------------------------------------------------------------------------------------------
# config.json

CONFIGS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "EA700"),
    "not UTF-8": (b'{"a": "\xff\xfe"}', "EA700"),
    "UTF-16": ('{"hidden_size": 1}'.encode("utf-16"), "EA700"),
    "NaN": (b'{"rope_theta": NaN}', "EA700"),
    "a list": (b"[1, 2]", "EA700"),
    "double keys": (b'{"hidden_size": 1, "hidden_size": 2}', "EA700"),
    "deep": (b'{"a":' * 200_000, "EA700"),
    "huge digits": (b'{"hidden_size": ' + b"9" * 10_000 + b"}", "EA700"),
    "no EAGLE": (b"{}", "EA702"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_malformed_configs_are_refused(name: str, tmp_path: Path) -> None:
    data, code = CONFIGS[name]
    (tmp_path / "config.json").write_bytes(data)
    refused(code, read_draft, tmp_path)
    refused(code, read_draft, tmp_path / "config.json")
    refused("EA774" if code == "EA702" else code, read_target, tmp_path)


WRONG: list[tuple[str, Any]] = [
    ("hidden_size", 10**30),
    ("hidden_size", "4096"),
    ("hidden_size", 0),
    ("hidden_size", True),
    ("num_attention_heads", 1.5),
    ("vocab_size", [1]),
    ("rope_theta", float("inf")),
    ("rope_theta", 10**400),
    ("rope_scaling", "yarn"),
    ("architectures", "LlamaForCausalLMEagle3"),
    ("architectures", [1]),
    ("norm_before_fc", "yes"),
    ("eagle_config", [1, 2]),
    ("eagle_config", {"eagle_aux_hidden_state_layer_ids": "2,30,58"}),
    ("eagle_config", {"eagle_aux_hidden_state_layer_ids": [2, 30.0, 58]}),
    ("eagle_config", {"eagle_aux_hidden_state_layer_ids": [True, 30, 58]}),
    ("eagle_config", {"eagle_aux_hidden_state_layer_ids": [10**30]}),
    ("eagle_config", {"eagle_aux_hidden_state_layer_ids": list(range(5000))}),
    ("eagle_config", {"use_aux_hidden_state": 1}),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_fields_of_a_wrong_type_are_refused(field: str, value: Any, make_draft: Make) -> None:
    config = small.llama_config([2, 16, 29]) | {field: value}
    message = refused("EA703", read_draft, make_draft(config))
    assert field in message


def test_all_wrong_fields_are_said_at_once(make_draft: Make) -> None:
    config = small.llama_config(hidden_size=None, num_attention_heads="x", vocab_size=-1)
    with pytest.raises(DataError) as caught:
        read_draft(make_draft(config))
    assert {d.where.rsplit(": ", 1)[1] for d in caught.value.diagnostics if d.where} == {
        "hidden_size",
        "num_attention_heads",
        "vocab_size",
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from(
        [*small.llama_config([1]), "fc_norm", "speculators_config", "transformer_layer_config", "head_dim"]
    ),
)
def test_any_value_in_any_field_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: Any, field: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "config.json").write_text(json.dumps(small.llama_config([2, 16, 29]) | {field: value}))
    (folder / "target.json").write_text(json.dumps(small.target_config()))
    assert outcome(lambda: json.dumps(check_draft(folder / "target.json", folder).as_dict())) in (None, "EA700")


# ---------------------------------------------------------------------------------------------------------------------
# the file system


def test_links_of_a_model_cache_are_followed(make_draft: Make, tmp_path: Path) -> None:
    folder = make_draft(small.llama_config(), small.llama_tensors())
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for name in ("config.json", "model.safetensors"):
        (linked / name).symlink_to(folder / name)
    assert read_draft(linked).has_weights


def test_links_that_lead_nowhere_or_in_circles_are_refused(make_draft: Make) -> None:
    folder = make_draft(small.llama_config())
    (folder / "model.safetensors").symlink_to(folder / "gone")
    refused("EA700", read_draft, folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "model.safetensors")
    refused("EA700", read_draft, folder)


def test_folders_and_devices_in_place_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    refused("EA700", read_draft, tmp_path)
    (tmp_path / "config.json").rmdir()
    os.mkfifo(tmp_path / "config.json")
    refused("EA700", read_draft, tmp_path)  # opening it would wait for ever
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to("/dev/zero")
    refused("EA700", read_draft, tmp_path)


def test_a_folder_named_like_weights_is_refused(make_draft: Make) -> None:
    folder = make_draft(small.llama_config())
    (folder / "model.safetensors").mkdir()
    refused("EA700", read_draft, folder)


def test_an_oversized_config_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(2**31)
    assert "too large" in refused("EA700", read_draft, tmp_path)


@pytest.mark.parametrize(
    "weight_map",
    [
        {"fc.weight": "../secret.safetensors"},
        {"fc.weight": "/etc/secret.safetensors"},
        {"fc.weight": "weights.bin"},
        {"fc.weight": "nul\0.safetensors"},
        {"fc.weight": 3},
        {f"t{k}": f"{k}.safetensors" for k in range(5000)},
        {},
        [],
        None,
    ],
)
def test_an_index_that_reaches_out_of_its_folder_is_refused(weight_map: Any, make_draft: Make) -> None:
    folder = make_draft(small.llama_config())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    refused("EA701", read_draft, folder)


def test_an_index_of_missing_files_is_refused(make_draft: Make) -> None:
    folder = make_draft(small.llama_config())
    index = {"weight_map": {"fc.weight": "gone.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused("EA700", read_draft, folder)


@pytest.mark.parametrize("source", ["nowhere/deep/inside", "", "nul\0", "weights.bin", "x" * 5000])
def test_sources_that_are_nothing_are_refused(source: str) -> None:
    refused("EA700", read_draft, source)
    refused("EA700", read_target, source)


def test_a_weight_file_is_no_checkpoint(make_draft: Make) -> None:
    folder = make_draft(small.llama_config(), small.llama_tensors())
    refused("EA700", read_draft, folder / "model.safetensors")


# ---------------------------------------------------------------------------------------------------------------------
# the hub


def test_a_hub_name_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message = refused("EA704", read_draft, "AQ-MedAI/Kimi-K25-eagle3")
    assert "eagle-adapters[hub]" in message


def test_a_hub_draft_is_read_by_its_headers_alone(
    monkeypatch: pytest.MonkeyPatch, make_draft: Make, make_target: Make
) -> None:
    """With the client's interface stood in for: huggingface_hub 1.x, `hf_hub_download`, `get_safetensors_metadata`."""
    import huggingface_hub
    from huggingface_hub.utils import SafetensorsFileMetadata, TensorInfo

    folder = make_draft(small.llama_config([2, 30, 58]), small.llama_tensors())
    header = read_header(folder / "model.safetensors")
    tensors = {
        name: TensorInfo(dtype=t.dtype, shape=list(t.shape), data_offsets=(t.start, t.stop))
        for name, t in header.tensors.items()
    }
    asked: list[str] = []

    class Metadata:
        files_metadata = {"model.safetensors": SafetensorsFileMetadata(metadata={}, tensors=tensors)}

    def download(name: str, file: str) -> str:
        asked.append(f"{name} {file}")
        return str(folder / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", lambda name: Metadata)
    spec = read_draft("AQ-MedAI/Kimi-K25-eagle3")
    assert asked == ["AQ-MedAI/Kimi-K25-eagle3 config.json"]
    assert (spec.ids, spec.num_aux, spec.folder) == ((2, 30, 58), 3, None)
    verdict = check_draft(make_target(small.kimi_config()), spec)
    assert verdict.clean
    assert "AQ-MedAI/Kimi-K25-eagle3" in (verdict.command or "")


def test_an_unreachable_hub_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def download(name: str, file: str) -> str:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    refused("EA704", read_draft, "owner/name")
