"""`eagle-adapters inspect`: every kind of TARGET, the JSON keys, the exit codes."""

from __future__ import annotations

import json

import pytest

from eagle_adapters.cli import main
from eagle_adapters.cli.target import resolve_target
from eagle_adapters.errors import EagleAdaptersError
from eagle_adapters.tiny import tiny_config

KEYS = [
    *("target", "engine", "engine_version", "status", "chain", "decoder", "embedding", "head", "plan", "refusal"),
]


@pytest.fixture
def inspect(capsys):
    """Exit code and JSON of the command."""

    def run(*arguments):
        code = main(["inspect", *map(str, arguments), "--format", "json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(tiny_config("kimi_k25")))
    return tmp_path


def test_kimi_by_folder_file_family_and_architecture_is_the_same(inspect, folder):
    outcomes = []
    for target in (folder, folder / "config.json", "kimi_k25", "Kimi_K25ForConditionalGeneration"):
        code, data = inspect(target)
        assert code == 0
        assert list(data) == KEYS
        assert data.pop("target") == str(target)
        outcomes.append(data)
    assert outcomes.count(outcomes[0]) == 4
    data = outcomes[0]
    assert data["engine"] == "transformers"
    assert data["status"] == "adaptable"
    assert [link["path"] for link in data["chain"]] == ["", "model", "model.language_model"]
    assert data["decoder"] == {
        "path": "model.language_model",
        "layers": "model.language_model.layers",
        "num_layers": tiny_config("kimi_k25")["text_config"]["num_hidden_layers"],
    }
    assert data["embedding"]["path"] == "model.language_model.embed_tokens"
    assert data["head"]["path"] == "lm_head"
    assert {edit["name"] for edit in data["plan"]["edits"]} == {"eagle3_capture", "get_embed_and_head"}
    assert data["refusal"] is None


@pytest.mark.parametrize("target", ["transformers:GPT2LMHeadModel", "GPT2LMHeadModel"])
def test_a_class_of_transformers(inspect, target):
    code, data = inspect(target)
    assert code == 0
    assert data["decoder"]["path"] == "transformer"
    assert data["chain"][0]["class"] == "transformers.models.gpt2.modeling_gpt2:GPT2LMHeadModel"


def test_what_cannot_be_adapted_is_a_finding(inspect):
    code, data = inspect("gemma3n")
    assert code == 1
    assert data["status"] == "unsupported"
    assert data["plan"] is None
    assert data["refusal"]["reasons"][0]["code"] == "EA403"


def test_a_tower_chosen_as_decoder_and_a_bad_choice(inspect):
    code, data = inspect("kimi_k25", "--decoder", "model.vision_tower")
    assert data["decoder"]["path"] == "model.vision_tower"
    code, data = inspect("kimi_k25", "--decoder", "nowhere")
    assert code == 1
    assert data["chain"] == []
    assert data["refusal"]["reasons"][0]["code"] == "EA203"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_is_not_installed_is_said(inspect, monkeypatch, engine):
    from eagle_adapters.backends.base import backend

    monkeypatch.setattr(type(backend(engine)), "version", lambda self: None)
    for arguments in (("kimi_k25", "--engine", engine), (f"{engine}.some.module:Class",)):
        code, data = inspect(*arguments)
        assert code == 2
        assert [error["code"] for error in data["error"]] == ["EA205"]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("no such thing!", "EA117"),
        ("NoSuchForCausalLM", "EA206"),
        ("transformers:Nothing", "EA206"),
        ("nowhere:Class", "EA206"),
        ("/nowhere/config.json", "EA106"),
    ],
)
def test_a_target_that_is_none(inspect, target, code):
    exit_code, data = inspect(target)
    assert exit_code == 2
    assert data["error"][0]["code"] == code


@pytest.mark.parametrize("content", ["[]", "{", "\xff"])
def test_a_config_that_is_none(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content.encode("latin-1"))
    for target in (path, tmp_path):
        with pytest.raises(EagleAdaptersError) as caught:
            resolve_target(str(target))
        assert caught.value.code == "EA106"


def test_a_target_knows_its_class_in_each_engine():
    for name in ("kimi_k25", "KimiK25ForConditionalGeneration"):
        target = resolve_target(name)
        assert target.family == "kimi_k25"
        assert target.class_in("vllm") == "vllm.model_executor.models.kimi_k25:KimiK25ForConditionalGeneration"
        assert target.class_in("sglang") == "sglang.srt.models.kimi_k25:KimiK25ForConditionalGeneration"
    assert resolve_target("vllm.x:Y").engine == "vllm"
    assert resolve_target("vllm.x:Y").class_in("vllm") == "vllm.x:Y"


def test_the_table_shows_chain_and_plan(capsys):
    assert main(["inspect", "gpt2"]) == 0
    out = capsys.readouterr().out
    for text in ("gpt2 in transformers", "adaptable", "transformer.h", "transformer.wte", "add_method", "8 layers"):
        assert text in out
