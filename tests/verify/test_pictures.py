"""What a small checkpoint needs before an engine can show its target a picture."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from eagle_adapters.tiny import picture, tiny_config
from eagle_adapters.verify.pictures import fold_placeholders, save_picture, save_tokenizer
from eagle_adapters.verify.vllm.picture import add_processor, shown


def test_each_run_of_placeholders_becomes_one() -> None:
    assert fold_placeholders([5, 9, 9, 9, 7, 7, 9, 9], 9) == [5, 9, 7, 7, 9]
    assert fold_placeholders([5, 7], 9) == [5, 7]


def test_the_drawn_picture_survives_its_file(tmp_path: Path) -> None:
    file = save_picture(picture(), tmp_path / "picture.png")
    assert torch.equal(picture(file), picture())


def test_the_tokenizer_has_one_word_for_every_id(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    save_tokenizer(tmp_path, 20, 12, "<|media_pad|>")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("<3> <|media_pad|> <19>")["input_ids"] == [3, 12, 19]
    assert tokenizer.convert_tokens_to_ids("<|media_pad|>") == 12
    assert len(tokenizer) == 20


def test_vllm_finds_the_processor_of_a_small_kimi(tmp_path: Path) -> None:
    config = tiny_config("kimi_k25")
    (tmp_path / "config.json").write_text(json.dumps(config))
    add_processor(tmp_path)
    written = json.loads((tmp_path / "preprocessor_config.json").read_text())
    assert written["media_proc_cfg"]["patch_size"] == config["vision_config"]["patch_size"]
    assert (tmp_path / "tokenizer.json").is_file()


def test_vllm_keeps_the_processor_that_a_checkpoint_brings(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text("{}")
    add_processor(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["preprocessor_config.json"]


def test_vllm_is_given_a_picture_under_the_name_it_knows(tmp_path: Path) -> None:
    file = str(save_picture(picture(), tmp_path / "picture.png"))
    (chunk,) = shown(file, "vision_chunk")["vision_chunk"]
    assert chunk["type"] == "image"
    assert chunk["image"].size == (56, 56)
    (plain,) = shown(file, "image")["image"]
    assert plain.size == (56, 56)
