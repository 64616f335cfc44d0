"""The likely cause of a served acceptance, from figures made with a known cause and from those published."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle_adapters.cli import main
from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.errors import DataError, UsageError
from eagle_adapters.speculation.accept import Acceptance, Interval
from eagle_adapters.speculation.cost import break_even_acceptance, expected_length, predict, round_cost, speed_up
from eagle_adapters.speculation.diagnosis import Cause, diagnose
from eagle_adapters.speculation.served import Served, read_served
from eagle_adapters.speculation.signatures import SIGNATURES

GOOD = (0.70, 0.50, 0.36)


def offline(rates: Sequence[float] = GOOD, rounds: int = 4000, width: float = 0.05) -> Acceptance:
    length = 1 + sum(rates)
    interval = Interval(length, length - width, length + width)
    return Acceptance(len(rates), 50, rounds, interval, tuple(rates), int(rounds * length), rounds + 50)


def served(rates: Sequence[float], rounds: int = 20000, engine: str = "vllm") -> Served:
    counts = tuple(round(rate * rounds) for rate in rates)
    return Served(engine, rounds, counts, 1 + sum(counts) / rounds, len(rates))


CASES = {
    # cause: offline, served, more
    "as offline": (Cause.SOUND, offline(), served((0.69, 0.50, 0.37)), {}),
    "published gpt-oss figures": (Cause.SOUND, offline((0.65, 0.40, 0.24)), served((0.65, 0.40, 0.24)), {}),
    "capture ignored": (Cause.INTERFACE, offline(), served((0.012, 0.001, 0.0)), {}),
    "off by one": (Cause.INTERFACE, offline(), served((0.58, 0.38, 0.25)), {}),
    "draft positions": (Cause.POSITIONS, offline(), served((0.70, 0.36, 0.15)), {}),
    "images": (Cause.POSITIONS, offline(), served(GOOD), {"images": served((0.5, 0.3, 0.2))}),
    "long prompts": (Cause.POSITIONS, offline(), served(GOOD), {"long": served((0.4, 0.2, 0.1))}),
    "raw prompts": (Cause.TEMPLATE, offline(), served((0.1, 0.02, 0.0)), {"template": served(GOOD)}),
    "random head": (Cause.WEIGHTS, offline((0.004, 0.0, 0.0)), served((0.004, 0.0, 0.0)), {}),
    "weak draft": (Cause.WEAK_DRAFT, offline((0.30, 0.09, 0.03)), served((0.30, 0.09, 0.03)), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_of_known_figures(name: str) -> None:
    cause, measured, counted, variants = CASES[name]
    found = diagnose(measured, counted, variants=variants)
    assert found.cause is cause, found
    suspicion = found.suspicions[0]
    assert any(character.isdigit() for character in suspicion.evidence)
    assert suspicion.next_step
    json.dumps(found.as_dict())


def test_every_signature_is_seen_in_a_case() -> None:
    """So that no row of the table is dead."""
    reading = [("[1, 29, 57]", Interval(2.20, 2.17, 2.23))]
    found = [diagnose(case[1], case[2], variants=case[3]) for case in CASES.values()]
    found.append(diagnose(offline(), served((0.58, 0.37, 0.25)), readings=reading))
    found.append(diagnose(offline(), Served("sglang", None, None, 1.9, 3)))
    assert {s.signature for diagnosis in found for s in diagnosis.suspicions} == {s.name for s in SIGNATURES}


def test_a_served_length_above_offline_is_unclear() -> None:
    found = diagnose(offline((0.5, 0.3, 0.2)), served(GOOD))
    assert found.cause is Cause.UNCLEAR


def test_a_served_length_of_another_reading_names_it() -> None:
    found = diagnose(
        offline(),
        served((0.58, 0.37, 0.25)),
        readings=[("[2, 30, 58]", Interval(2.56, 2.51, 2.61)), ("[1, 29, 57]", Interval(2.20, 2.17, 2.23))],
    )
    assert found.cause is Cause.INTERFACE
    assert "[1, 29, 57]" in found.suspicions[0].evidence


def test_findings_of_check_outweigh_what_the_figures_merely_allow() -> None:
    weights = Diagnostic("EA751", "norm_before_fc is true, but its weights are missing", Severity.ERROR)
    note = Diagnostic("EA760", "another base", Severity.NOTE)
    images = {"images": served((0.2, 0.1, 0.05))}
    plain = diagnose(offline(), served((0.55, 0.35, 0.2)), variants=images)
    assert plain.cause is Cause.POSITIONS
    ids = Diagnostic("EA716", "read otherwise", Severity.WARNING)
    found = diagnose(offline(), served((0.55, 0.35, 0.2)), variants=images, findings=[ids, note, weights])
    assert found.cause is Cause.INTERFACE
    assert found.suspicions[0].findings == ("EA716",)


def test_too_few_rounds_do_not_accuse_anyone() -> None:
    found = diagnose(offline(), served((0.6, 0.4, 0.3), rounds=20))
    assert found.cause is Cause.SOUND
    assert found.difference.low < 0 < found.difference.high


def test_rounds_that_are_alike_within_a_prompt_widen_the_interval() -> None:
    narrow = diagnose(offline(width=0.01), served(GOOD, rounds=4000)).served
    wide = diagnose(offline(width=0.2), served(GOOD, rounds=4000)).served
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


@given(st.integers(min_value=0, max_value=2**32))
def test_a_sound_interface_is_rarely_accused(seed: int) -> None:
    """Rounds drawn from the very same rates are never called a fault, as a loss must be significant *and* material."""
    rng = random.Random(seed)
    conditional = [0.7, 0.5 / 0.7, 0.36 / 0.5]
    counts = [0, 0, 0]
    rounds = 3000
    for _ in range(rounds):
        for k, chance in enumerate(conditional):
            if rng.random() >= chance:
                break
            counts[k] += 1
    counted = Served("vllm", rounds, tuple(counts), 1 + sum(counts) / rounds, 3)
    assert diagnose(offline(), counted).cause is Cause.SOUND


# ---------------------------------------------------------------------------------------------------------------------
# metrics

PROMETHEUS = """
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 40.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 180.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 120.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 80.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 25.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 25.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 15.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 15.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="2"} 10.0
"""


def test_prometheus_text_of_vllm_is_summed_over_engines() -> None:
    found = read_served(PROMETHEUS)
    assert (found.engine, found.rounds, found.accepted, found.steps) == ("vllm", 100, (65, 40, 25), 3)
    assert found.length == pytest.approx(2.3)
    assert found.rates == pytest.approx((0.65, 0.40, 0.25))


def test_the_state_before_the_run_is_subtracted() -> None:
    before = "\n".join(
        [
            'vllm:spec_decode_num_drafts_total{engine="0"} 50',
            'vllm:spec_decode_num_draft_tokens_total{engine="0"} 150',
            'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 60',
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 30',
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 20',
            'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"} 10',
        ]
    )
    found = read_served(PROMETHEUS, before)
    assert (found.rounds, found.accepted) == (50, (35, 20, 15))
    assert found.length == pytest.approx(1 + 70 / 50)


def test_metrics_of_an_offline_vllm_engine_as_json() -> None:
    names = "vllm:spec_decode_num_"
    rows = [
        {"name": f"{names}drafts", "labels": {}, "value": 100},
        {"name": f"{names}draft_tokens", "labels": {}, "value": 300},
        {"name": f"{names}accepted_tokens", "labels": {}, "value": 130},
        {"name": f"{names}accepted_tokens_per_pos", "labels": {}, "values": [65, 40, 25]},
        {"name": "vllm:kv_cache_usage_perc", "value": 0.5},
    ]
    assert read_served(json.dumps(rows)) == read_served(PROMETHEUS)


def test_vllm_log_lines_are_added_up() -> None:
    line = (
        "INFO SpecDecoding metrics: Mean acceptance length: 2.30, Accepted throughput: 1.00 tokens/s, "
        "Drafted throughput: 2.00 tokens/s, Accepted: 130 tokens, Drafted: 300 tokens, "
        "Per-position acceptance rate: 0.650, 0.400, 0.250, Avg Draft acceptance rate: 43.3%\n"
    )
    found = read_served(line * 2)
    assert (found.rounds, found.accepted) == (200, (130, 80, 50))
    assert found.length == pytest.approx(2.3)


def test_meta_info_of_sglang_requests() -> None:
    rows = [
        {
            "text": "...",
            "meta_info": {
                "spec_verify_ct": 60,
                "spec_num_correct_drafts": 80,
                "spec_num_proposed_drafts": 180,
                "spec_accept_length": 2.4,
                "spec_correct_drafts_histogram": [20, 15, 10, 15],
            },
        },
        {
            "text": "...",
            "meta_info": {
                "spec_verify_ct": 40,
                "spec_num_correct_drafts": 50,
                "spec_num_proposed_drafts": 120,
                "spec_correct_drafts_histogram": [15, 10, 5, 10],
            },
        },
    ]
    found = read_served(json.dumps(rows))
    assert (found.engine, found.rounds, found.accepted) == ("sglang", 100, (65, 40, 25))
    assert found.length == pytest.approx(2.3)


@pytest.mark.parametrize(
    ("text", "length", "rounds"),
    [
        ('sglang:spec_accept_length{tp_rank="0"} 2.5\nsglang:spec_num_steps{tp_rank="0"} 3', 2.5, None),
        ("sglang:spec_verify_calls_total 40\nsglang:generation_tokens_total 100", 2.5, 40),
        ('{"internal_states": [{"avg_spec_accept_length": 2.5}]}', 2.5, None),
        ('{"meta_info": {"spec_verify_ct": 10, "spec_num_correct_drafts": 15}}', 2.5, 10),
    ],
)
def test_means_of_sglang(text: str, length: float, rounds: int | None) -> None:
    found = read_served(text)
    assert (found.engine, found.length, found.rounds, found.rates) == ("sglang", length, rounds, None)
    assert diagnose(offline((0.69, 0.49, 0.34)), found).cause is Cause.SOUND


BAD = {
    "empty": ("", "EA840"),
    "other metrics": ("vllm:num_requests_running 3", "EA840"),
    "never drafted": ("vllm:spec_decode_num_drafts_total 0", "EA840"),
    "broken JSON": ("{", "EA840"),
    "deep JSON": ("[" * 100_000, "EA840"),
    "other JSON": ('{"a": [1]}', "EA840"),
    "not a number": ("vllm:spec_decode_num_drafts_total many", "EA840"),
    "NaN": ("vllm:spec_decode_num_drafts_total NaN", "EA840"),
    "far position": (
        'vllm:spec_decode_num_drafts_total 1\nvllm:spec_decode_num_accepted_tokens_per_pos{position="99999999999"} 1',
        "EA840",
    ),
    "more accepted than drafted": (PROMETHEUS.replace("180.0", "1.0").replace("120.0", "1.0"), "EA841"),
    "positions do not add up": (PROMETHEUS.replace('"0"} 25.0', '"0"} 26.0'), "EA841"),
    "later above earlier": (
        PROMETHEUS.replace('position="1"} 25.0', 'position="1"} 70.0').replace(" 80.0", " 125.0"),
        "EA841",
    ),
    "histogram does not add up": (
        '{"spec_verify_ct": 3, "spec_num_correct_drafts": 2, "spec_correct_drafts_histogram": [1, 1]}',
        "EA841",
    ),
    "length below one": ("sglang:spec_accept_length 0.5", "EA841"),
    "length above the steps": ("sglang:spec_accept_length 5\nsglang:spec_num_steps 3", "EA841"),
    "no rounds": ('{"spec_verify_ct": 0, "spec_num_correct_drafts": 0}', "EA840"),
}


@pytest.mark.parametrize("name", BAD)
def test_metrics_that_say_nothing_or_contradict_themselves(name: str) -> None:
    text, code = BAD[name]
    with pytest.raises(DataError) as caught:
        read_served(text)
    assert caught.value.code == code


def test_counters_that_went_back_are_refused() -> None:
    with pytest.raises(DataError, match="EA841"):
        read_served(PROMETHEUS, PROMETHEUS)
    with pytest.raises(DataError, match="EA840"):
        read_served("sglang:spec_accept_length 2", "sglang:spec_accept_length 2")


# ---------------------------------------------------------------------------------------------------------------------
# cost


def test_the_question_the_project_began_with() -> None:
    """15 % acceptance at 3 steps, 0.66 times the speed: a round cost 1.78 plain passes."""
    length = expected_length(0.15, 3)
    assert length == pytest.approx(1.176, abs=1e-3)
    assert speed_up(length, 0.2, 1.18, 3) == pytest.approx(0.66, abs=0.01)
    needed = break_even_acceptance(0.2, 1.18, 3)
    assert needed is not None
    assert 0.45 < needed < 0.5


@given(
    st.floats(min_value=0, max_value=0.5),
    st.floats(min_value=0.5, max_value=3),
    st.integers(min_value=1, max_value=10),
)
def test_break_even_is_where_the_speed_up_is_one(draft_cost: float, verify_cost: float, steps: int) -> None:
    needed = break_even_acceptance(draft_cost, verify_cost, steps)
    if needed is None:
        assert round_cost(draft_cost, verify_cost, steps) > steps + 1
    elif needed > 0:
        length = expected_length(needed, steps)
        assert math.isclose(speed_up(length, draft_cost, verify_cost, steps), 1, rel_tol=1e-6)
    else:
        assert round_cost(draft_cost, verify_cost, steps) <= 1


def test_predictions_for_fewer_steps() -> None:
    found = predict((0.7, 0.5, 0.05), 0.2, 1.0)
    assert [p.steps for p in found] == [1, 2, 3]
    assert [round(p.length, 2) for p in found] == [1.7, 2.2, 2.25]
    assert max(found, key=lambda p: p.speed_up).steps == 2  # the third token is not worth its cost


@pytest.mark.parametrize("costs", [(-0.1, 1, 3), (0.1, 0, 3), (0.1, 1, 0), (math.nan, 1, 3)])
def test_costs_that_cannot_be_are_refused(costs: tuple[float, float, int]) -> None:
    with pytest.raises(UsageError, match="EA901"):
        break_even_acceptance(*costs)


# ---------------------------------------------------------------------------------------------------------------------
# command


def test_the_command_names_cause_evidence_and_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accepted, metrics, ranking = tmp_path / "accept.json", tmp_path / "metrics.txt", tmp_path / "calibration.json"
    accepted.write_text(json.dumps(offline().as_dict() | {"prompt_file": "prompts.txt"}))
    metrics.write_text(PROMETHEUS)
    ranking.write_text(
        json.dumps(
            {
                "ranking": [
                    {"boundaries": [2, 30, 58], "acceptance_length": {"mean": 2.56, "low": 2.51, "high": 2.61}},
                    {"boundaries": [1, 29, 57], "acceptance_length": {"mean": 2.3, "low": 2.27, "high": 2.33}},
                ]
            }
        )
    )
    metrics.write_text(
        "".join(
            f"{line.rsplit(' ', 1)[0]} {float(line.rsplit(' ', 1)[1]) * 100}\n"
            for line in PROMETHEUS.splitlines()
            if line and line[0] != "#"
        )
    )
    arguments = ["diagnose", "--offline", str(accepted), "--served", str(metrics), "--calibration", str(ranking)]
    assert main([*arguments, "--format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["cause"] == "interface"
    assert "[1, 29, 57]" in data["suspicions"][0]["evidence"]
    assert data["cost"]["speed_up"] == pytest.approx(2.3 / 1.25)
    assert [row["steps"] for row in data["cost"]["by_steps"]] == [1, 2, 3]
    assert main(arguments) == 1
    assert "likely cause: interface" in capsys.readouterr().out


def test_a_sound_pair_ends_with_code_0(tmp_path: Path) -> None:
    accepted, metrics = tmp_path / "accept.json", tmp_path / "metrics.txt"
    accepted.write_text(json.dumps(offline((0.65, 0.40, 0.25)).as_dict()))
    metrics.write_text(PROMETHEUS)
    assert main(["diagnose", "--offline", str(accepted), "--served", str(metrics)]) == 0


@pytest.mark.parametrize(
    "content", ["{}", "[]", "no", '{"steps": 3, "rates": [2.0]}', json.dumps(offline().as_dict() | {"rounds": 0})]
)
def test_files_that_are_no_measurement_end_with_code_2(content: str, tmp_path: Path) -> None:
    accepted, metrics = tmp_path / "accept.json", tmp_path / "metrics.txt"
    accepted.write_text(content)
    metrics.write_text(PROMETHEUS)
    assert main(["diagnose", "--offline", str(accepted), "--served", str(metrics)]) == 2
