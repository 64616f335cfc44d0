"""Every fault that a draft's files can carry is found by `check_draft`, and clean drafts have none above a note."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.check import Verdict, check_draft
from eagle_adapters.drafts.support import Status
from eagle_adapters.testing import checkpoints as small

E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE
Make = Callable[..., Path]


@pytest.fixture
def check(make_draft: Make, make_target: Make) -> Callable[..., Verdict]:
    """Checks a draft: `check(config, tensors, target, engine=..., target_tensors=...)`."""

    def run(
        config: dict[str, Any],
        tensors: small.Tensors | None,
        target: dict[str, Any] | None = None,
        engine: str | None = None,
        target_tensors: small.Tensors | None = None,
        **options: Any,
    ) -> Verdict:
        folder = make_draft(config, tensors)
        return check_draft(make_target(target or small.target_config(), target_tensors), folder, engine, **options)

    return run


def find(verdict: Verdict, code: str) -> Diagnostic:
    found = [finding for finding in verdict.findings if finding.code == code]
    assert found, f"no {code} among {[f.code for f in verdict.findings]}"
    finding = found[0]
    assert finding.consequence, "every finding says what happens if the draft is served anyway"
    assert finding.where
    assert finding.expected
    return finding


# ---------------------------------------------------------------------------------------------------------------------
# clean drafts


CLEAN = {
    "specforge, no ids": (small.llama_config(), small.llama_tensors(), small.target_config()),
    "boundary ids": (small.llama_config([2, 30, 58]), small.llama_tensors(), small.kimi_config()),
    "layer output ids": (small.llama_config([1, 29, 57]), small.llama_tensors(), small.kimi_config()),
    "modelopt mla": (small.mla_config([2, 30, 58]), small.mla_tensors(), small.kimi_config()),
    "speculators": (
        small.speculators_config([2, 16, 29]),
        small.llama_tensors(at="layers.0."),
        small.target_config(),
    ),
    "automodel": (
        small.llama_config(architectures=["LlamaForCausalLMEagle3"]),
        small.llama_tensors(at="layers.0.", prefix="model."),
        small.target_config(),
    ),
    "four states": (
        small.llama_config([2, 10, 20, 32]),
        small.llama_tensors(states=4),
        small.target_config(),
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_drafts_have_no_finding_above_a_note(name: str, check: Any) -> None:
    verdict = check(*CLEAN[name])
    assert {f.severity for f in verdict.findings} <= {N}, [str(f) for f in verdict.findings]
    assert verdict.verdict is Status.OK
    assert verdict.clean
    assert verdict.command


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_published_kimi_pair_is_clean_in_both_engines(engine: str, check: Any) -> None:
    verdict = check(small.llama_config([2, 30, 58]), small.llama_tensors(), small.kimi_config(), engine)
    assert {f.severity for f in verdict.findings} <= {N}, [str(f) for f in verdict.findings]
    assert verdict.as_dict()["boundaries"] == [2, 30, 58]
    assert (verdict.convention, verdict.source) == ("boundary", "default_triple")


# ---------------------------------------------------------------------------------------------------------------------
# layer ids


def test_ids_that_differ_between_two_fields_are_refused(check: Any) -> None:
    config = small.llama_config([2, 16, 29], eagle_aux_hidden_state_layer_ids=[3, 20, 30])
    verdict = check(config, small.llama_tensors())
    assert find(verdict, "EA710").severity is E
    assert verdict.verdict is Status.BLOCKED
    assert verdict.command is None


def test_ids_as_boundaries_and_as_layer_outputs_are_one_statement(check: Any) -> None:
    """Right in vLLM, which takes the top-level ids, and in SGLang, which takes the nested ones."""
    config = small.llama_config([1, 15, 28], eagle_aux_hidden_state_layer_ids=[2, 16, 29])
    verdict = check(config, small.llama_tensors())
    assert find(verdict, "EA710").severity is N
    assert not [f for f in verdict.findings if f.code == "EA716"]
    assert verdict.clean


@pytest.mark.parametrize("ids", [[2, 16, 40], [-3, 16, 29]])
def test_ids_out_of_range_are_refused(ids: list[int], check: Any) -> None:
    verdict = check(small.llama_config(ids), small.llama_tensors())
    assert find(verdict, "EA711").severity is E
    assert (verdict.verdict, verdict.boundaries, verdict.source) == (Status.BLOCKED, None, None)


def test_an_id_given_twice_is_refused(check: Any) -> None:
    finding = find(check(small.llama_config([2, 2, 2]), small.llama_tensors()), "EA712")
    assert finding.severity is E
    assert "drops" in (finding.consequence or "")


def test_an_undecided_convention_is_said_with_both_readings(check: Any) -> None:
    verdict = check(small.llama_config([4, 20, 40]), small.llama_tensors(), small.target_config(layers=45))
    finding = find(verdict, "EA713")
    assert finding.severity is W
    assert "boundary gives [4, 20, 40]" in (finding.found or "")
    assert "layer_output gives [5, 21, 41]" in (finding.found or "")
    assert (verdict.boundaries, verdict.convention, verdict.source) == (None, None, "undecided")
    assert not verdict.clean


def test_a_declared_convention_settles_it(check: Any) -> None:
    verdict = check(
        small.llama_config([4, 20, 40]),
        small.llama_tensors(),
        small.target_config(layers=45),
        convention="layer_output",
    )
    assert verdict.as_dict()["boundaries"] == [5, 21, 41]
    assert (verdict.convention, verdict.source) == ("layer_output", "user")
    assert (verdict.command or "").startswith("EAGLE_ADAPTERS_CONVENTION=layer_output ")
    assert not [f for f in verdict.findings if f.code == "EA713"]


def test_the_default_for_a_draft_without_ids_is_said_out_loud(check: Any) -> None:
    verdict = check(small.llama_config(), small.llama_tensors())
    finding = find(verdict, "EA714")
    assert finding.severity is N
    assert "[2, 16, 29]" in finding.message
    assert verdict.source == "no_ids"


def test_a_shallow_target_has_no_default(check: Any) -> None:
    verdict = check(small.llama_config(), small.llama_tensors(), small.target_config(layers=5))
    assert find(verdict, "EA714").severity is E


def test_ids_that_do_not_ascend_are_reported(check: Any) -> None:
    verdict = check(small.llama_config([32, 2, 16]), small.llama_tensors())
    assert find(verdict, "EA715").severity is W


@pytest.mark.parametrize(
    ("ids", "architecture", "layers", "engine", "captured"),
    [
        # SpecForge ids are layer outputs: vLLM takes them as boundaries
        ([1, 46, 90], "Qwen3MoeForCausalLM", 94, "vllm", "[1, 46, 90]"),
        # boundaries: most SGLang classes add one
        ([2, 16, 29], "LlamaForCausalLM", 32, "sglang", "[3, 17, 30]"),
        # the V2 runner does not read nested ids
        ([24, 30, 36], "GptOssForCausalLM", 36, "vllm", "[2, 18, 33]"),
    ],
)
def test_an_engine_that_reads_the_ids_otherwise_is_reported(
    ids: list[int], architecture: str, layers: int, engine: str, captured: str, check: Any
) -> None:
    verdict = check(small.llama_config(ids), small.llama_tensors(), small.target_config(architecture, layers), engine)
    finding = next(f for f in verdict.findings if f.code == "EA716" and captured in f.message)
    assert finding.severity is W
    assert verdict.verdict is Status.ADAPTER
    assert not verdict.clean


@pytest.mark.parametrize(
    ("ids", "architecture", "layers"),
    [
        ([1, 29, 57], "KimiK25ForConditionalGeneration", 61),
        ([2, 30, 58], "KimiK25ForConditionalGeneration", 61),
        ([24, 30, 36], "GptOssForCausalLM", 36),
        ([1, 46, 90], "Qwen3MoeForCausalLM", 94),
    ],
)
def test_sglang_rules_that_fit_are_not_reported(ids: list[int], architecture: str, layers: int, check: Any) -> None:
    verdict = check(small.llama_config(ids), small.llama_tensors(), small.target_config(architecture, layers), "sglang")
    assert not [f for f in verdict.findings if f.code in ("EA716", "EA717")]
    assert verdict.verdict is Status.OK


def test_top_level_ids_are_not_read_by_sglang(check: Any) -> None:
    config = small.llama_config(eagle_aux_hidden_state_layer_ids=[5, 16, 29])
    verdict = check(config, small.llama_tensors(), engine="sglang", convention="boundary")
    assert "[2, 16, 29]" in find(verdict, "EA716").message


def test_a_boundary_that_the_class_cannot_capture_is_refused(check: Any) -> None:
    verdict = check(small.llama_config([2, 16, 32]), small.llama_tensors(), engine="sglang")
    assert find(verdict, "EA717").severity is E
    assert verdict.verdict is Status.BLOCKED


# ---------------------------------------------------------------------------------------------------------------------
# widths


def test_fusion_weights_of_another_number_of_states_are_found(check: Any) -> None:
    verdict = check(small.llama_config([2, 16, 29]), small.llama_tensors(states=4))
    finding = find(verdict, "EA720")
    assert finding.severity is E
    assert "4" in (finding.expected or "")
    assert "3" in (finding.found or "")


def test_four_states_without_ids_are_found(check: Any) -> None:
    assert find(check(small.llama_config(), small.llama_tensors(states=4)), "EA720").severity is E


def test_a_width_that_no_number_of_states_explains_is_found(check: Any) -> None:
    tensors = small.llama_tensors() | {"fc.weight": small.trained((small.HIDDEN, 70), 1)}
    assert "multiple" in find(check(small.llama_config(), tensors), "EA720").message


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_four_top_level_ids_build_a_fusion_layer_for_three(engine: str, check: Any) -> None:
    config = small.llama_config(eagle_aux_hidden_state_layer_ids=[2, 10, 20, 32])
    finding = find(check(config, small.llama_tensors(states=4), engine=engine), "EA721")
    assert finding.severity is E
    assert "num_aux_hidden_states" in (finding.next_step or "")


def test_a_fusion_layer_that_is_not_used_is_found(check: Any) -> None:
    config = small.llama_config(eagle_config={"use_aux_hidden_state": False})
    assert find(check(config, small.llama_tensors()), "EA722").severity is E


def test_a_draft_for_another_width_is_found(check: Any) -> None:
    verdict = check(small.llama_config(), small.llama_tensors(), small.target_config(hidden_size=64))
    assert find(verdict, "EA723").severity is E


def test_a_narrow_draft_cannot_share_the_embedding(check: Any) -> None:
    tensors = small.llama_tensors() | {"fc.weight": small.trained((small.HIDDEN, 3 * 64), 1)}
    config = small.llama_config(target_hidden_size=64)
    verdict = check(config, tensors, small.target_config(hidden_size=64))
    assert "embedding" in find(verdict, "EA723").message


def test_shapes_that_contradict_the_config_are_found(check: Any) -> None:
    verdict = check(small.llama_config(intermediate_size=64), small.llama_tensors())
    assert {f.where for f in verdict.findings if f.code == "EA724"} == {
        "midlayer.mlp.gate_proj.weight",
        "midlayer.mlp.up_proj.weight",
        "midlayer.mlp.down_proj.weight",
    }


def test_a_number_of_layers_copied_from_the_target_is_found(check: Any) -> None:
    finding = find(check(small.llama_config(num_hidden_layers=32), small.llama_tensors()), "EA725")
    assert "copied from the target" in (finding.found or "")


# ---------------------------------------------------------------------------------------------------------------------
# vocabularies


def with_map(values: list[int]) -> small.Tensors:
    return small.llama_tensors() | {"d2t": small.integers(values)}


def offsets() -> list[int]:
    return [token - k for k, token in enumerate(small.draft_tokens())]


def test_offsets_out_of_range_are_found(check: Any) -> None:
    values = offsets()
    values[-1] = small.VOCAB
    values[3] = -40
    assert find(check(small.llama_config(), with_map(values)), "EA730").severity is E


def test_two_draft_tokens_for_one_token_are_found(check: Any) -> None:
    values = offsets()
    values[5] = values[4] - 1
    assert find(check(small.llama_config(), with_map(values)), "EA731").severity is E


def test_an_unordered_map_is_found(check: Any) -> None:
    tokens = small.draft_tokens()
    tokens[5], tokens[6] = tokens[6], tokens[5]
    finding = find(check(small.llama_config(), with_map([t - k for k, t in enumerate(tokens)])), "EA731")
    assert finding.severity is W


def test_a_map_made_again_from_other_data_is_found(check: Any) -> None:
    """d2t and t2d each well formed, but of two different vocabularies."""
    tokens = set(small.draft_tokens()[:-1]) | {2}
    tensors = small.llama_tensors() | {"t2d": small.booleans(t in tokens for t in range(small.VOCAB))}
    assert find(check(small.llama_config(), tensors), "EA732").severity is E


def test_a_mask_of_another_vocabulary_is_found(check: Any) -> None:
    tensors = small.llama_tensors() | {"t2d": small.booleans([True] * 50)}
    assert "50" in (find(check(small.llama_config(), tensors), "EA732").found or "")


def test_a_missing_map_is_found_with_the_side_file(make_draft: Make, make_target: Make) -> None:
    """NeMo's older exports keep the map in eagle_meta.pt."""
    tensors = {name: value for name, value in small.llama_tensors().items() if name not in ("d2t", "t2d")}
    folder = make_draft(small.llama_config(), tensors)
    (folder / "eagle_meta.pt").write_bytes(b"\x80\x04never opened")
    finding = find(check_draft(make_target(small.target_config()), folder), "EA733")
    assert finding.severity is E
    assert "eagle_meta.pt" in (finding.found or "")


@pytest.mark.parametrize("values", [small.draft_tokens(), list(range(small.DRAFT_VOCAB))])
def test_token_ids_in_place_of_offsets_are_found(values: list[int], check: Any) -> None:
    """The second: a map left at its arange default, so that draft token i becomes token 2 i."""
    finding = find(check(small.llama_config(), with_map(values)), "EA734")
    assert finding.severity is E
    assert "d2t[i] - i" in (finding.next_step or "")


def test_a_map_of_the_wrong_size_or_kind_is_found(make_draft: Make, make_target: Make) -> None:
    target = make_target(small.target_config())
    short = make_draft(small.llama_config(), with_map(offsets()[:-1]), name="short")
    assert find(check_draft(target, short), "EA735").severity is E
    tensors = small.llama_tensors() | {"d2t": ("F32", (small.DRAFT_VOCAB,), bytes(4 * small.DRAFT_VOCAB))}
    assert find(check_draft(target, make_draft(small.llama_config(), tensors, name="float")), "EA735").severity is E


def test_a_full_vocabulary_with_moved_tokens_is_found(check: Any) -> None:
    tensors = small.mla_tensors() | {"d2t": small.integers([0] * (small.VOCAB - 1) + [-1])}
    assert find(check(small.mla_config(), tensors, small.kimi_config()), "EA735").severity is E


def test_a_full_vocabulary_with_zero_offsets_is_clean(check: Any) -> None:
    tensors = small.mla_tensors() | {"d2t": small.integers([0] * small.VOCAB)}
    assert check(small.mla_config(), tensors, small.kimi_config()).clean


@pytest.mark.parametrize(("size", "severity"), [(500, E), (300, W)])
def test_another_vocabulary_is_found(size: int, severity: Severity, check: Any) -> None:
    verdict = check(small.llama_config(), small.llama_tensors(), small.target_config(vocab_size=size))
    assert find(verdict, "EA736").severity is severity


def test_a_tokenizer_larger_than_the_embedding_is_found(make_draft: Make, make_target: Make) -> None:
    target = make_target(small.target_config(), {"lm_head.weight": small.trained((8, small.HIDDEN), 1)})
    (target / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 450}]}')
    verdict = check_draft(target, make_draft(small.llama_config(), small.llama_tensors()))
    assert "451 tokens" in (find(verdict, "EA736").found or "")


def test_heads_that_do_not_fit_the_vocabulary_are_found(make_draft: Make, make_target: Make) -> None:
    target = make_target(small.target_config())
    rows = small.llama_tensors() | {"lm_head.weight": small.trained((90, small.HIDDEN), 1)}
    assert find(check_draft(target, make_draft(small.llama_config(), rows, name="rows")), "EA737").severity is E
    none = {name: value for name, value in small.llama_tensors().items() if name != "lm_head.weight"}
    assert find(check_draft(target, make_draft(small.llama_config(), none, name="none")), "EA737").severity is E
    tied = make_draft(small.llama_config(tie_word_embeddings=True), none, name="tied")
    assert "tied" in find(check_draft(target, tied), "EA737").message


def test_image_tokens_beyond_the_embedding_are_found(check: Any) -> None:
    verdict = check(
        small.llama_config([2, 30, 58]), small.llama_tensors(), small.kimi_config(media_placeholder_token_id=401)
    )
    finding = find(verdict, "EA738")
    assert finding.severity is E
    assert finding.where == "media_placeholder_token_id"


# ---------------------------------------------------------------------------------------------------------------------
# tensors


def test_missing_tensors_are_found(check: Any) -> None:
    """The layout of one published draft: layers.0 without hidden_norm, and no fc, lm_head or d2t."""
    lost = ("hidden_norm", "fc.", "lm_head", "d2t", "t2d")
    tensors = {n: v for n, v in small.llama_tensors(at="layers.0.").items() if not any(part in n for part in lost)}
    finding = find(check(small.llama_config(), tensors), "EA740")
    assert finding.severity is E
    assert "fc.weight" in (finding.expected or "")
    assert "layers.0.hidden_norm.weight" in (finding.expected or "")


@pytest.mark.parametrize(("engine", "severity"), [("vllm", E), ("sglang", W), (None, W)])
def test_unknown_tensors_are_found(engine: str | None, severity: Severity, check: Any) -> None:
    tensors = small.llama_tensors() | {"feature_fuser.weight": small.trained((8, 8), 1)}
    assert find(check(small.llama_config(), tensors, engine=engine), "EA741").severity is severity


def test_one_tensor_under_two_names_is_found(check: Any) -> None:
    tensors = small.llama_tensors() | {"layers.0.hidden_norm.weight": small.norm(small.HIDDEN, 99)}
    assert "midlayer.hidden_norm.weight" in find(check(small.llama_config(), tensors), "EA742").message


def test_one_tensor_in_two_files_is_found(make_draft: Make, make_target: Make) -> None:
    folder = make_draft(small.llama_config(), small.llama_tensors())
    small.write_safetensors(folder / "extra.safetensors", {"norm.weight": small.norm(small.HIDDEN, 99)})
    finding = find(check_draft(make_target(small.target_config()), folder), "EA742")
    assert "extra.safetensors" in (finding.found or "")


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_weights_of_one_value_are_found(value: float, check: Any) -> None:
    from array import array

    shape = (small.HIDDEN, 3 * small.HIDDEN)
    data = array("f", [value] * (shape[0] * shape[1])).tobytes()
    verdict = check(small.llama_config(), small.llama_tensors() | {"fc.weight": ("F32", shape, data)})
    assert find(verdict, "EA743").severity is E


def test_a_zero_norm_is_an_error_and_one_of_ones_a_note(make_draft: Make, make_target: Make) -> None:
    from array import array

    target = make_target(small.target_config())
    for name, value, severity in (("zero", 0.0, E), ("ones", 1.0, N)):
        data = ("F32", (small.HIDDEN,), array("f", [value] * small.HIDDEN).tobytes())
        folder = make_draft(small.llama_config(), small.llama_tensors() | {"norm.weight": data}, name=name)
        assert find(check_draft(target, folder), "EA743").severity is severity


@pytest.mark.parametrize("kind", ["normal 0.02", "uniform of a new linear layer", "bfloat16"])
def test_weights_that_were_never_trained_are_found(kind: str, check: Any) -> None:
    import random
    from array import array

    shape = (small.HIDDEN, 3 * small.HIDDEN)
    rng = random.Random(7)
    if kind.startswith("uniform"):
        bound = shape[1] ** -0.5
        values = array("f", (rng.uniform(-bound, bound) for _ in range(shape[0] * shape[1])))
        fc = ("F32", shape, values.tobytes())
    else:
        fc = small.normal(shape, 0.02)
    if kind == "bfloat16":
        raw = fc[2]
        fc = ("BF16", shape, b"".join(raw[at + 2 : at + 4] for at in range(0, len(raw), 4)))
    verdict = check(small.llama_config(), small.llama_tensors() | {"fc.weight": fc})
    finding = find(verdict, "EA744")
    assert (finding.severity, finding.where) == (W, "fc.weight")
    assert len([f for f in verdict.findings if f.code == "EA744"]) == 1


def test_values_that_are_not_finite_are_found(check: Any) -> None:
    dtype, shape, data = small.llama_tensors()["fc.weight"]
    bad = data[:400] + b"\x00\x00\xc0\x7f" + data[404:]
    verdict = check(small.llama_config(), small.llama_tensors() | {"fc.weight": (dtype, shape, bad)})
    assert find(verdict, "EA745").severity is E


def target_weights() -> small.Tensors:
    return {
        "model.embed_tokens.weight": small.trained((small.VOCAB, small.HIDDEN), 100),
        "lm_head.weight": small.trained((small.VOCAB, small.HIDDEN), 101),
    }


def rows(tensor: small.Tensor, wanted: list[int]) -> small.Tensor:
    dtype, shape, data = tensor
    width = 4 * shape[1]
    return dtype, (len(wanted), shape[1]), b"".join(data[row * width : (row + 1) * width] for row in wanted)


def test_the_targets_own_embedding_is_only_noted(check: Any) -> None:
    theirs = target_weights()
    tensors = small.llama_tensors() | {"embed_tokens.weight": theirs["model.embed_tokens.weight"]}
    verdict = check(small.llama_config(), tensors, target_tensors=theirs)
    assert "is the target's" in find(verdict, "EA746").message
    assert verdict.clean


def test_an_unrelated_embedding_is_found(check: Any) -> None:
    tensors = small.llama_tensors() | {"embed_tokens.weight": small.trained((small.VOCAB, small.HIDDEN), 55)}
    verdict = check(small.llama_config(), tensors, target_tensors=target_weights())
    assert find(verdict, "EA746").severity is W


def test_a_head_whose_rows_belong_to_other_tokens_is_found(check: Any) -> None:
    theirs = target_weights()
    head = rows(theirs["lm_head.weight"], list(range(small.DRAFT_VOCAB)))
    verdict = check(small.llama_config(), small.llama_tensors() | {"lm_head.weight": head}, target_tensors=theirs)
    assert find(verdict, "EA746").severity is E


def test_a_head_cut_from_the_targets_is_clean(check: Any) -> None:
    theirs = target_weights()
    head = rows(theirs["lm_head.weight"], small.draft_tokens())
    verdict = check(small.llama_config(), small.llama_tensors() | {"lm_head.weight": head}, target_tensors=theirs)
    assert not [f for f in verdict.findings if f.code == "EA746"]


def test_weights_as_pickles_alone_are_reported_and_never_opened(make_draft: Make, make_target: Make) -> None:
    folder = make_draft(small.llama_config())
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    verdict = check_draft(make_target(small.target_config()), folder)
    assert find(verdict, "EA706").severity is W


# ---------------------------------------------------------------------------------------------------------------------
# switches, loading


def test_a_norm_that_the_config_forgets_is_found(check: Any) -> None:
    """gpt-oss drafts whose `norm_before_fc` was not carried over."""
    tensors = small.llama_tensors() | {"input_norm.weight": small.norm(3 * small.HIDDEN, 1)}
    finding = find(check(small.llama_config(), tensors), "EA751")
    assert finding.severity is E
    assert "norm_before_fc" in (finding.next_step or "")


@pytest.mark.parametrize("field", ["fc_norm", "norm_before_fc"])
def test_a_norm_without_weights_is_found(field: str, check: Any) -> None:
    verdict = check(small.llama_config(**{field: True}), small.llama_tensors())
    assert find(verdict, "EA751").severity is E
    assert find(verdict, "EA740").severity is E


def test_eagle31_with_its_weights_is_clean(check: Any) -> None:
    names = ("aux_norm_low", "aux_norm_mid", "aux_norm_high")
    tensors = small.llama_tensors() | {f"{n}.weight": small.norm(small.HIDDEN, k) for k, n in enumerate(names)}
    assert check(small.llama_config(fc_norm=True, norm_output=True), tensors).clean


IGNORED: list[tuple[str, dict[str, Any], small.Tensors, str, Severity]] = [
    ("norm_before_residual", small.llama_config(norm_before_residual=True), {}, "sglang", W),
    ("use_aux_norm", small.llama_config(use_aux_norm=True), {}, "vllm", E),
    ("fc.bias", small.llama_config(), {"fc.bias": small.norm(small.HIDDEN, 1)}, "sglang", W),
    ("fc.bias", small.llama_config(), {"fc.bias": small.norm(small.HIDDEN, 1)}, "vllm", E),
    ("q_proj.bias", small.llama_config(), {"midlayer.self_attn.q_proj.bias": small.norm(32, 1)}, "sglang", W),
    ("q_norm", small.llama_config(), {"midlayer.self_attn.q_norm.weight": small.norm(8, 1)}, "sglang", W),
    ("q_norm", small.llama_config(), {"midlayer.self_attn.q_norm.weight": small.norm(8, 1)}, "vllm", E),
]


@pytest.mark.parametrize(("field", "config", "tensors", "engine", "severity"), IGNORED)
def test_fields_that_the_engine_ignores_are_found(
    field: str, config: Any, tensors: Any, engine: str, severity: Severity, check: Any
) -> None:
    verdict = check(config, small.llama_tensors() | tensors, engine=engine)
    found = [f for f in verdict.findings if f.code == "EA750" and field in f"{f.where} {f.found}"]
    assert [f.severity for f in found] == [severity]


def test_a_chosen_engine_is_not_blamed_for_the_other(check: Any) -> None:
    verdict = check(small.llama_config(norm_before_residual=True), small.llama_tensors(), engine="vllm")
    assert not [f for f in verdict.findings if f.code == "EA750"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_norm_that_mla_drafts_do_not_get_is_found(engine: str, check: Any) -> None:
    tensors = small.mla_tensors() | {"input_norm.weight": small.norm(3 * small.HIDDEN, 1)}
    verdict = check(small.mla_config([2, 30, 58], norm_before_fc=True), tensors, small.kimi_config(), engine)
    assert find(verdict, "EA750").severity is W


@pytest.mark.parametrize(
    "fields", [{"use_last_layernorm": False}, {"use_mtp_layernorm": True}, {"parallel_draft_step": 3}]
)
def test_modelopt_switches_that_no_engine_reads_are_found(fields: dict[str, Any], check: Any) -> None:
    config = small.mla_config([2, 30, 58])
    config["eagle_config"] |= fields
    verdict = check(config, small.mla_tensors(), small.kimi_config())
    assert find(verdict, "EA750").severity is W


def test_the_v2_runner_does_not_read_use_aux_hidden_state(check: Any) -> None:
    tensors = {n: v for n, v in small.llama_tensors().items() if n != "fc.weight" and "hidden_norm" not in n}
    config = small.llama_config(eagle_config={"use_aux_hidden_state": False})
    verdict = check(config, tensors, engine="vllm")
    assert find(verdict, "EA750").severity is W
    assert verdict.command is not None
    assert verdict.command.startswith("VLLM_USE_V2_MODEL_RUNNER=0 ")
    assert (verdict.as_dict()["boundaries"], verdict.source) == ([], "no_states")


def test_an_unstated_residual_norm_of_speculators_is_found(check: Any) -> None:
    config = small.speculators_config([2, 16, 29])
    del config["norm_before_residual"]
    verdict = check(config, small.llama_tensors(at="layers.0."), engine="vllm")
    assert find(verdict, "EA750").severity is W


def test_speculators_drafts_do_not_load_in_sglang(check: Any) -> None:
    verdict = check(small.speculators_config([2, 16, 29]), small.llama_tensors(at="layers.0."), engine="sglang")
    assert find(verdict, "EA752").severity is E
    assert "convert_draft" in (find(verdict, "EA752").next_step or "")


def test_a_class_name_that_sglang_takes_for_a_plain_model_is_found(check: Any) -> None:
    verdict = check(small.llama_config(architectures=["LlamaForCausalLM"]), small.llama_tensors(), engine="sglang")
    assert "plain language model" in (find(verdict, "EA752").consequence or "")


def test_a_draft_vocabulary_that_sglang_needs_is_found(check: Any) -> None:
    config = small.llama_config(draft_vocab_size=None)
    del config["draft_vocab_size"]
    assert find(check(config, small.llama_tensors(), engine="sglang"), "EA753").severity is E


def test_a_head_that_sglang_leaves_random_is_found(check: Any) -> None:
    """An MLA draft for Kimi that was first shipped without its lm_head."""
    tensors = {name: value for name, value in small.mla_tensors().items() if name != "lm_head.weight"}
    verdict = check(small.mla_config([2, 30, 58]), tensors, small.kimi_config(), "sglang")
    assert find(verdict, "EA754").severity is E


def test_a_head_that_sglang_drops_is_found(check: Any) -> None:
    verdict = check(small.llama_config(tie_word_embeddings=True), small.llama_tensors(), engine="sglang")
    assert "drops the draft's head" in find(verdict, "EA754").message


def test_an_embedding_that_sglang_leaves_random_is_found(check: Any) -> None:
    verdict = check(small.llama_config(target_hidden_size=None), small.llama_tensors(), engine="sglang")
    assert "random" in find(verdict, "EA754").message


def test_a_trained_embedding_that_sglang_replaces_is_found(check: Any) -> None:
    tensors = small.llama_tensors() | {"embed_tokens.weight": small.trained((small.VOCAB, small.HIDDEN), 55)}
    verdict = check(small.llama_config(embed_requires_grad=True), tensors, engine="sglang")
    assert "replaces" in find(verdict, "EA754").message


# ---------------------------------------------------------------------------------------------------------------------
# positions, precision, the target


YARN = {"rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096}


def test_a_dropped_rope_scaling_is_found(check: Any) -> None:
    verdict = check(small.llama_config(), small.llama_tensors(), small.target_config(rope_scaling=YARN))
    assert find(verdict, "EA760").severity is W


def test_the_same_scaling_in_either_spelling_is_clean(check: Any) -> None:
    config = small.llama_config(rope_scaling={"type": "yarn", "factor": 64, "original_max_position_embeddings": 4096})
    target = small.target_config()
    del target["rope_theta"], target["rope_scaling"]
    target["rope_parameters"] = YARN | {"rope_theta": 10000.0}
    assert check(config, small.llama_tensors(), target).clean


def test_another_base_is_noted_and_a_missing_one_found(make_draft: Make, make_target: Make) -> None:
    target = make_target(small.target_config(rope_theta=500000.0))
    own = make_draft(small.llama_config(rope_theta=1000000.0), small.llama_tensors(), name="own")
    assert find(check_draft(target, own), "EA760").severity is N
    config = small.llama_config()
    del config["rope_theta"]
    finding = find(check_draft(target, make_draft(config, small.llama_tensors(), name="none")), "EA760")
    assert finding.severity is W


@pytest.mark.parametrize(("engine", "severity"), [(None, W), ("sglang", W), ("vllm", N)])
def test_a_short_context_is_found(engine: str | None, severity: Severity, check: Any) -> None:
    config = small.llama_config(max_position_embeddings=2048)
    assert find(check(config, small.llama_tensors(), engine=engine), "EA761").severity is severity


def test_multimodal_positions_of_one_side_are_found(make_draft: Make, make_target: Make) -> None:
    sections = {"rope_type": "default", "mrope_section": [16, 24, 24]}
    ours = make_draft(small.llama_config(rope_scaling=sections), small.llama_tensors(), name="ours")
    assert find(check_draft(make_target(small.target_config()), ours), "EA762").severity is W


def test_plain_positions_under_a_multimodal_target_are_noted(check: Any) -> None:
    target = small.target_config(rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]})
    verdict = check(small.llama_config(), small.llama_tensors(), target)
    assert find(verdict, "EA762").severity is N
    assert verdict.clean


def test_a_quantised_target_is_noted(check: Any) -> None:
    verdict = check(
        small.llama_config(), small.llama_tensors(), small.target_config(quantization_config={"quant_method": "fp8"})
    )
    assert "fp8" in find(verdict, "EA770").message
    assert verdict.clean


def test_a_quantisation_copied_from_the_target_is_found(check: Any) -> None:
    config = small.llama_config(quantization_config={"quant_method": "fp8"})
    assert find(check(config, small.llama_tensors()), "EA770").severity is E


@pytest.mark.parametrize(
    "quantization", [{"quant_method": "quark", "rotation": "quarot"}, {"transform_config": {"config_groups": {"u": 1}}}]
)
def test_a_rotated_target_is_found(quantization: dict[str, Any], check: Any) -> None:
    target = small.target_config(quantization_config=quantization)
    assert find(check(small.llama_config(), small.llama_tensors(), target), "EA771").severity is W


def test_a_draft_for_another_model_is_noted(check: Any) -> None:
    verdict = check(small.speculators_config([2, 16, 29]), small.llama_tensors(at="layers.0."))
    assert find(verdict, "EA775").severity is N


def test_a_target_taken_for_a_draft_is_refused(check: Any) -> None:
    verdict = check(small.target_config(), None)
    assert verdict.verdict is Status.BLOCKED
    assert verdict.findings[0].code == "EA702"


def test_malformed_weights_are_a_finding(make_draft: Make, make_target: Make) -> None:
    folder = make_draft(small.llama_config(), small.llama_tensors())
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    verdict = check_draft(make_target(small.target_config()), folder)
    assert (verdict.verdict, verdict.findings[0].code) == (Status.BLOCKED, "EA701")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_draft_with_experts_is_found(engine: str, check: Any) -> None:
    """TorchSpec's template of a Kimi draft with experts, which no engine runs."""
    tensors = {name: value for name, value in small.mla_tensors().items() if "_proj" not in name or "self_attn" in name}
    tensors |= {
        "layers.0.mlp.gate.weight": small.trained((4, small.HIDDEN), 1),
        **{
            f"layers.0.mlp.experts.{k}.{part}_proj.weight": small.trained((8, small.HIDDEN), k)
            for k in range(4)
            for part in ("gate", "up", "down")
        },
    }
    verdict = check(small.mla_config([2, 30, 58], use_moe=True), tensors, small.kimi_config(), engine)
    assert "experts" in find(verdict, "EA753").message
    assert verdict.verdict is Status.BLOCKED
    assert not [f for f in verdict.findings if f.code in ("EA740", "EA741")]


def test_names_that_vllm_does_not_place_are_found(make_draft: Make, make_target: Make) -> None:
    """vLLM puts `model.` before every name, so names that carry it already are unknown to it."""
    target = make_target(small.target_config())
    prefixed = make_draft(small.llama_config(), small.llama_tensors(at="layers.0.", prefix="model."), name="prefixed")
    assert find(check_draft(target, prefixed, "vllm"), "EA753").severity is E
    assert check_draft(target, prefixed, "sglang").clean
