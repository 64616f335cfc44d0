"""How the pair is made: the text, the widening, the loss, the cache. Trainings here have two steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eagle_adapters.drafts.reader import read_draft
from eagle_adapters.drafts.spec import Format, Weights
from eagle_adapters.testing.pair import build, corpus, draft, target, tokenizer

QUICK = {"steps": 2, "batch": 2, "length": 32, "rate": 1e-3}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of its own, and trainings of two steps."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "TARGET", target.Recipe(**QUICK, seed=0))
        patch.setattr(build, "DRAFT", target.Recipe(**QUICK, seed=1))
        patch.setattr(build, "HIDDEN", 64)
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def untrained(quick: Path) -> build.Pair:
    return build.load_pair()


def test_the_pair_is_built_once_and_is_the_same_every_time(quick: Path, untrained: build.Pair) -> None:
    seen: list[tuple[str, int]] = []
    assert untrained.folder.parent == quick / "eagle-adapters" / "pairs"
    assert build.load_pair(progress=lambda stage, step, steps, loss: seen.append((stage, step))) == untrained
    assert seen == []
    second = build.build_pair(quick / "again", progress=lambda stage, step, steps, loss: seen.append((stage, step)))
    assert seen == [("target", 1), ("target", 2), ("draft", 1), ("draft", 2)]
    for name in ("target", "draft"):
        one, two = (load_file(p.folder / name / "model.safetensors") for p in (untrained, second))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[k], two[k]) for k in one)
    assert {p.name for p in untrained.folder.parent.iterdir()} == {build.key(), f".{build.key()}.lock"}


def test_an_interrupted_build_leaves_nothing(quick: Path, tmp_path: Path) -> None:
    def stop(stage: str, step: int, steps: int, loss: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build.build_pair(tmp_path / "pair", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_the_checkpoints_are_what_engines_and_the_reader_expect(untrained: build.Pair) -> None:
    config = untrained.load_target().config
    assert config.architectures == ["Kimi_K25ForConditionalGeneration"]
    text = config.text_config
    assert (text.kv_lora_rank, text.qk_rope_head_dim, text.num_hidden_layers) == (512, 64, 8)
    spec = read_draft(untrained.draft)
    assert (spec.format, spec.num_aux, spec.ids) == (Format.SPECFORGE, 3, (1, 3, 4))
    assert (spec.embedding, spec.head, spec.unknown) == (Weights.TARGET, Weights.OWN, ())
    assert spec.required_tensors().keys() <= spec.tensors.keys()
    assert spec.draft_vocab_size < spec.vocab_size == config.text_config.vocab_size


def test_widening_changes_the_widths_and_nothing_else() -> None:
    narrow = target.build(target.NARROW, hidden=64, layers=3, seed=5).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in narrow.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * noise)
    wide = target.widen(narrow, hidden=64, layers=3)
    ids = torch.randint(256, (2, 30), generator=generator)
    with torch.no_grad():
        one, two = (model(input_ids=ids, output_hidden_states=True) for model in (narrow, wide))
    assert wide.config.text_config.kv_lora_rank == 512
    torch.testing.assert_close(two.logits, one.logits, rtol=1e-3, atol=1e-3)
    for before, after in zip(one.hidden_states, two.hidden_states, strict=True):
        torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)


def test_the_loss_of_each_step_is_that_of_drafting_column_by_column(untrained: build.Pair) -> None:
    """The training's masks against the same steps taken for one column at a time, with a memory of its own."""
    from eagle_adapters.speculation.drafter import Memory, load_drafter

    model = untrained.load_target()
    drafter = load_drafter(untrained.draft, model)
    ids = torch.tensor(corpus.prompts(1, 16))
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True)
        states = [out.hidden_states[b] for b in untrained.boundaries]
        loss = float(draft.lookahead_loss(drafter, ids, states, out.logits))
        wanted = out.logits[..., drafter.draft_to_target].softmax(-1)
        columns = ids.shape[1] - 1 - draft.DRAFT_STEPS
        total, weight = 0.0, 0.0
        for column in range(columns):
            memory, length = Memory(), column + 1
            visible = torch.ones(length, length, dtype=torch.bool).tril()[None]
            combined = drafter.combine([state[:, :length] for state in states])
            head, fed = drafter(ids[:, 1 : length + 1], combined, torch.arange(length)[None], visible, memory)
            for step in range(draft.DRAFT_STEPS):
                scores = drafter.logits(head[:, -1]).log_softmax(-1)
                total -= draft.DECAY**step * float((wanted[:, length + step] * scores).sum()) / columns
                weight += draft.DECAY**step / columns
                token = ids[:, length + step + 1 : length + step + 2]
                seen = torch.ones(1, 1, length + step + 1, dtype=torch.bool)
                head, fed = drafter(token, fed[:, -1:], torch.tensor([[length + step]]), seen, memory)
    assert loss == pytest.approx(total / weight, rel=1e-4)


def test_prompts_are_held_out_and_training_text_is_code() -> None:
    rows = corpus.prompts(200, 40)
    assert len({bytes(row) for row in rows}) > 195
    assert {len(row) for row in rows} == {40}
    text = corpus.training_text()
    assert text.count(b"def ") > 1000
    assert b"Command-line parsing library" in corpus.held_out_text()
    assert b"Command-line parsing library" not in text


def test_batches_depend_on_the_seed_alone() -> None:
    one, two, other = (next(corpus.batches(corpus.training_text(), 4, 64, seed)) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_the_tokenizer_gives_bytes(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer.save(tmp_path)
    loaded: Any = AutoTokenizer.from_pretrained(tmp_path)
    text = "def é(x):\n\treturn '漢'  # \x00"
    assert loaded(text)["input_ids"] == list(text.encode())
    assert loaded.decode(list(text.encode())) == text
    assert loaded.convert_tokens_to_ids(list(tokenizer.SPECIAL)) == list(range(256, 263))
