"""What a draft asks of SGLang: ids from either place, one reading, and an error for everything else."""

from __future__ import annotations

import pytest

from eagle_adapters.backends.sglang.request import (
    CONVENTION_ENV,
    Request,
    read_boundaries,
    read_request,
    remember,
    request_for,
)
from eagle_adapters.errors import BoundaryError, UsageError

IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch):
    monkeypatch.delenv(CONVENTION_ENV, raising=False)
    yield
    remember(None)


@pytest.mark.parametrize(
    ("config", "ids", "where"),
    [
        ({}, None, "no ids in the draft's config"),
        ({"eagle_config": None}, None, "no ids in the draft's config"),
        ({"eagle_config": {IDS: [1, 3, 4]}}, (1, 3, 4), f"eagle_config.{IDS}"),
        ({IDS: [2, 4, 5]}, (2, 4, 5), IDS),
        ({IDS: [2, 4, 5], "eagle_config": {IDS: [2, 4, 5]}}, (2, 4, 5), f"eagle_config.{IDS}"),
    ],
)
def test_ids_are_found_at_both_places(config, ids, where):
    assert read_request(config, None) == Request(ids, where, None)


def test_two_statements_that_differ_are_refused():
    with pytest.raises(BoundaryError) as caught:
        read_request({IDS: [1, 3, 4], "eagle_config": {IDS: [2, 4, 5]}}, "a/draft")
    assert caught.value.code == "EA541"


@pytest.mark.parametrize("value", [3, "1,2", [1, "2"], [True, 2]])
def test_what_is_no_list_of_ids_is_refused(value):
    with pytest.raises(BoundaryError) as caught:
        read_request({IDS: value}, None)
    assert caught.value.code == "EA001"


@pytest.mark.parametrize("ids", [None, (1, 3, 4), (2, 4, 5)])
def test_every_way_to_write_the_default_is_one_reading(ids):
    assert read_boundaries(Request(ids, "here"), 8).require() == (2, 4, 5)


@pytest.mark.parametrize(("declared", "boundaries"), [("boundary", (1, 3, 6)), ("layer_output", (2, 4, 7))])
def test_a_declared_convention_decides(monkeypatch, declared, boundaries):
    monkeypatch.setenv(CONVENTION_ENV, declared)
    assert read_boundaries(Request((1, 3, 6), "here"), 8).require() == boundaries


def test_an_undecided_convention_is_an_error_that_says_how_to_declare_it():
    with pytest.raises(BoundaryError) as caught:
        read_boundaries(Request((1, 3, 6), "here"), 8)
    assert caught.value.code == "EA005"
    assert CONVENTION_ENV in str(caught.value)


def test_a_convention_that_is_none_is_an_error(monkeypatch):
    monkeypatch.setenv(CONVENTION_ENV, "sglang")
    with pytest.raises(UsageError):
        read_boundaries(Request((1, 3, 6), "here"), 8)


def test_ids_out_of_order_are_refused(monkeypatch):
    monkeypatch.setenv(CONVENTION_ENV, "boundary")
    with pytest.raises(BoundaryError) as caught:
        read_boundaries(Request((4, 2, 5), "here"), 8)
    assert caught.value.code == "EA544"


def test_the_engine_must_pass_the_ids_of_the_draft():
    remember(Request((1, 3, 4), "here"))
    assert request_for([1, 3, 4]).ids == (1, 3, 4)
    assert request_for(None).ids == (1, 3, 4)
    with pytest.raises(BoundaryError) as caught:
        request_for([2, 4, 5])
    assert caught.value.code == "EA541"
