"""What the generated setter does: everything is checked before anything is switched on."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from eagle_adapters.backends.sglang import capture
from eagle_adapters.backends.sglang.capture import set_boundaries
from eagle_adapters.backends.sglang.request import CONVENTION_ENV, remember
from eagle_adapters.errors import AdaptationError, BoundaryError


@pytest.fixture(autouse=True)
def one_rank(monkeypatch):
    monkeypatch.delenv(CONVENTION_ENV, raising=False)
    monkeypatch.setattr(capture, "_parallel_sizes", dict)
    remember(None)


def target(layers=8):
    decoder = SimpleNamespace(layers=[SimpleNamespace() for _ in range(layers)])
    causal = SimpleNamespace(model=decoder, logits_processor=SimpleNamespace(expected_aux_hidden_states=None))
    return SimpleNamespace(language_model=causal)


def switch_on(model, ids, *, own=None, last="generated", several_ranks=True):
    return set_boundaries(
        model,
        ids,
        decoder="language_model.model",
        layers="layers",
        holder="language_model",
        own=own,
        last=last,
        several_ranks=several_ranks,
    )


@pytest.mark.parametrize("ids", [None, [1, 3, 4], [2, 4, 5]])
def test_boundaries_and_switches_are_set_and_logged(ids, caplog):
    model = target()
    with caplog.at_level(logging.INFO):
        switch_on(model, ids)
    causal = model.language_model
    assert causal.model.layers_to_capture == [2, 4, 5]
    assert model.capture_aux_hidden_states
    assert causal.capture_aux_hidden_states
    assert causal.logits_processor.expected_aux_hidden_states == 3
    assert len(caplog.messages) == 1
    assert "boundaries [2, 4, 5] of 8" in caplog.messages[0]


def test_layers_are_marked_where_the_class_looks_at_them():
    model = target()
    switch_on(model, [2, 4, 5], own="mark", last="added")
    marked = [n for n, layer in enumerate(model.language_model.model.layers) if layer._is_layer_to_capture]
    assert marked == [2, 4, 5]


def test_layers_are_not_marked_where_the_class_looks_at_the_list():
    model = target()
    switch_on(model, [2, 4, 5], own="list", last="added")
    assert not any(hasattr(layer, "_is_layer_to_capture") for layer in model.language_model.model.layers)


def test_the_last_boundary_is_refused_where_it_is_out_of_reach():
    model = target()
    with pytest.raises(BoundaryError) as caught:
        switch_on(model, [2, 4, 8], own="list", last="none")
    assert caught.value.code == "EA542"
    assert not hasattr(model.language_model.model, "layers_to_capture")
    switch_on(model, [2, 4, 8], own="list", last="added")
    assert model.language_model.model.layers_to_capture == [2, 4, 8]


@pytest.mark.parametrize(
    ("sizes", "own", "whole", "ids", "refused"),
    [
        ({"tp_size": 2}, None, False, [2, 4, 5], True),
        ({"tp_size": 2}, None, True, [2, 4, 5], False),
        ({"tp_size": 2}, "list", True, [2, 4, 5], False),
        ({"tp_size": 2}, "list", True, [2, 4, 8], False),
        ({"pp_size": 2}, None, True, [2, 4, 5], True),
        ({"pp_size": 2}, "list", True, [2, 4, 5], True),
        ({"attn_dp_size": 2}, None, True, [2, 4, 5], True),
        ({"attn_dp_size": 2}, "list", True, [2, 4, 5], False),
        ({"attn_dp_size": 2}, "list", True, [2, 4, 8], True),
        ({"attn_cp_size": 2}, None, True, [2, 4, 5], True),
        ({"tp_size": 1, "pp_size": 1}, None, False, [2, 4, 5], False),
    ],
)
def test_parallel_modes_that_are_not_proven_are_refused(monkeypatch, sizes, own, whole, ids, refused):
    monkeypatch.setattr(capture, "_parallel_sizes", lambda: sizes)
    model, last = target(), "generated" if own is None else "added"
    if not refused:
        switch_on(model, ids, own=own, last=last, several_ranks=whole)
        return
    with pytest.raises(AdaptationError) as caught:
        switch_on(model, ids, own=own, last=last, several_ranks=whole)
    assert caught.value.code == "EA543"
    assert not hasattr(model.language_model.model, "layers_to_capture")
