"""Converters between the formats: nothing is lost, ids keep their meaning, the way back is exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagle_adapters.boundaries import Convention, read_ids
from eagle_adapters.drafts.check import check_draft
from eagle_adapters.drafts.convert import convert_draft
from eagle_adapters.drafts.header import read_header
from eagle_adapters.drafts.keys import Layout, canonical, layout_of, write
from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.drafts.spec import Format
from eagle_adapters.drafts.target import read_target
from eagle_adapters.errors import BoundaryError, DataError, UsageError
from eagle_adapters.testing import checkpoints as small

Make = Callable[..., Path]

SOURCES: dict[str, tuple[dict[str, Any], small.Tensors]] = {
    "eagle": (small.llama_config(architectures=["LlamaForCausalLM"]), small.llama_tensors()),
    "specforge": (small.llama_config([1, 15, 28], some_field={"kept": [1, None]}), small.llama_tensors()),
    "angelslim": (
        small.llama_config(architectures=["Eagle3LlamaForCausalLM"], modal_type="VLM"),
        small.llama_tensors(),
    ),
    "speculators": (
        small.speculators_config([2, 16, 29], target_hidden_size=None, dtype="bfloat16"),
        small.llama_tensors(at="layers.0."),
    ),
    "modelopt": (
        small.llama_config([1, 15, 28])
        | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28], "use_last_layernorm": True}},
        small.llama_tensors(at="layers.0."),
    ),
    "torchspec": (small.llama_config([2, 16, 29], _torchspec_version="0.1"), small.llama_tensors(at="layers.0.")),
    "automodel": (
        small.llama_config(architectures=["LlamaEagle3DraftModel"], fc_norm=True),
        small.llama_tensors(at="layers.0.", prefix="model.")
        | {f"model.fc_norm.{k}.weight": small.norm(small.HIDDEN, k) for k in range(3)},
    ),
    "legacy names": (
        small.llama_config(fc_norm=True),
        small.llama_tensors()
        | {f"aux_norm_{n}.weight": small.norm(small.HIDDEN, 7) for n in ("low", "mid", "high")}
        | {"someone.elses.weight": small.norm(5, 1)},
    ),
}


def values(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    data = (folder / "model.safetensors").read_bytes()
    header = read_header(folder / "model.safetensors")
    return {name: (t.dtype, t.shape, data[t.start : t.stop]) for name, t in header.tensors.items()}


@pytest.mark.parametrize("to", list(Format))
@pytest.mark.parametrize("name", SOURCES)
def test_there_and_back_loses_nothing(
    name: str, to: Format, make_draft: Make, make_target: Make, tmp_path: Path
) -> None:
    config, tensors = SOURCES[name]
    source = make_draft(config, tensors, name="source")
    (source / "tokenizer_config.json").write_text("{}")
    target = read_target(make_target(small.target_config()))
    first = read_draft(source)
    there = convert_draft(source, tmp_path / "there", to, target=target)
    back = convert_draft(tmp_path / "there", tmp_path / "back", first.format, target=target)

    # there: the same draft in every respect that counts, named as the format names it
    assert set(there.tensors) == set(first.tensors)
    assert {t.name for t in there.unknown} == {t.name for t in first.unknown}
    assert layout_of(values(tmp_path / "there")) is {
        Format.EAGLE: Layout.MIDLAYER,
        Format.SPECFORGE: Layout.MIDLAYER,
        Format.ANGELSLIM: Layout.MIDLAYER,
        Format.AUTOMODEL: Layout.PREFIXED,
    }.get(to, Layout.LAYERS)
    assert read_ids(there.ids, 32).boundaries == read_ids(first.ids, 32).boundaries
    for field in ("hidden_size", "num_aux", "norms", "rope", "vocab_size", "draft_vocab_size", "embedding", "head"):
        if field == "norms":
            for switch in ("before_residual", "before_fc", "per_state", "output"):
                assert getattr(there.norms, switch) == getattr(first.norms, switch)
        else:
            assert getattr(there, field) == getattr(first, field), field
    for where in ("there", "back"):
        assert (tmp_path / where / "tokenizer_config.json").read_text() == "{}"

    # back: byte for byte
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == config
    assert values(tmp_path / "back") == values(source)
    assert back.ids == first.ids


def test_ids_are_written_in_the_convention_of_the_format(make_draft: Make, make_target: Make, tmp_path: Path) -> None:
    target = read_target(make_target(small.target_config()))
    source = make_draft(small.llama_config([1, 15, 28]), small.llama_tensors(), name="source")
    spec = convert_draft(source, tmp_path / "speculators", "speculators", target=target)
    assert {claim.where: claim.value for claim in spec.id_claims} == {
        "eagle_aux_hidden_state_layer_ids": (2, 16, 29),
        "transformer_layer_config.eagle_config.eagle_aux_hidden_state_layer_ids": (2, 16, 29),
    }
    assert spec.format is Format.SPECULATORS
    assert check_draft(target, spec, "vllm").clean


def test_a_declared_convention_is_used(make_draft: Make, make_target: Make, tmp_path: Path) -> None:
    target = read_target(make_target(small.target_config(layers=45)))
    source = make_draft(small.llama_config([4, 20, 40]), small.llama_tensors(), name="source")
    with pytest.raises(BoundaryError, match="EA005"):
        convert_draft(source, tmp_path / "undecided", "eagle", target=target)
    spec = convert_draft(source, tmp_path / "eagle", "eagle", target=target, convention=Convention.LAYER_OUTPUT)
    assert spec.ids == (5, 21, 41)
    assert not (tmp_path / "undecided").exists()


def test_an_edited_config_keeps_its_edits(make_draft: Make, make_target: Make, tmp_path: Path) -> None:
    target = read_target(make_target(small.target_config()))
    convert_draft(make_draft(*SOURCES["specforge"]), tmp_path / "there", "speculators", target=target)
    path = tmp_path / "there" / "config.json"
    config = json.loads(path.read_text())
    config["transformer_layer_config"]["rope_theta"] = 12345.0
    path.write_text(json.dumps(config))
    back = convert_draft(tmp_path / "there", tmp_path / "back", "specforge", target=target)
    assert back.rope.theta == 12345.0
    assert back.document["some_field"] == {"kept": [1, None]}
    assert back.ids == (1, 15, 28)


def test_a_prefixed_draft_becomes_loadable_in_vllm(make_draft: Make, make_target: Make, tmp_path: Path) -> None:
    target = read_target(make_target(small.target_config()))
    spec = convert_draft(make_draft(*SOURCES["automodel"]), tmp_path / "out", "modelopt", target=target)
    assert check_draft(target, spec, "vllm").clean
    assert check_draft(target, spec, "sglang").clean


def test_a_config_alone_is_converted_alone(make_draft: Make, tmp_path: Path) -> None:
    source = make_draft(small.llama_config())
    convert_draft(source / "config.json", tmp_path / "out", "automodel")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["config.json"]


def test_sharded_weights_become_one_file(make_draft: Make, tmp_path: Path) -> None:
    source = make_draft(small.llama_config())
    tensors = list(small.llama_tensors().items())
    parts = {"a.safetensors": dict(tensors[:6]), "b.safetensors": dict(tensors[6:])}
    for name, part in parts.items():
        small.write_safetensors(source / name, part)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    convert_draft(source, tmp_path / "out", "specforge")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]
    assert {name: value for name, (_, _, value) in values(tmp_path / "out").items()} == {
        name: value for name, (_, _, value) in tensors
    }


def test_what_cannot_be_converted_is_refused(make_draft: Make, make_target: Make, tmp_path: Path) -> None:
    target = read_target(make_target(small.kimi_config()))
    plain = make_draft(small.llama_config([2, 30, 58]), small.llama_tensors(), name="plain")
    with pytest.raises(DataError, match=r"EA705.*without the target"):
        convert_draft(plain, tmp_path / "out", "modelopt")
    mla = make_draft(small.mla_config(), small.mla_tensors(), name="mla")
    with pytest.raises(DataError, match=r"EA705.*MLA"):
        convert_draft(mla, tmp_path / "out", "speculators", target=target)
    with pytest.raises(DataError, match=r"EA705.*exists"):
        convert_draft(mla, tmp_path, "modelopt", target=target)
    with pytest.raises(UsageError, match="EA901"):
        convert_draft(mla, tmp_path / "out", "gguf", target=target)
    double = small.llama_tensors() | {"layers.0.hidden_norm.weight": small.norm(small.HIDDEN, 99)}
    with pytest.raises(DataError, match=r"EA705.*twice"):
        convert_draft(make_draft(small.llama_config(), double, name="double"), tmp_path / "out", "modelopt")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*partial"))


NAMES = [
    *(name for tensors in (small.llama_tensors(), small.mla_tensors()) for name in tensors),
    "layers.3.self_attn.q_norm.weight",
    "layers.0.mlp.experts.11.down_proj.weight",
    "layers.0.self_attn.q_proj.weight_scale_inv",
    "model.fc_norm.2.weight",
    "embed_tokens.weight",
    "input_norm.weight",
    "mask_hidden",
]


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("name", NAMES)
def test_every_layout_names_every_tensor_reversibly(name: str, layout: Layout) -> None:
    plain = canonical(name)
    assert plain is not None
    assert canonical(write(plain, layout)) == plain


@pytest.mark.parametrize("name", ["layers.0.linear_attn.weight", "fc2.weight", "model.model.fc.weight", "midlayer.x"])
def test_names_of_no_known_draft_are_unknown(name: str) -> None:
    assert canonical(name) is None
