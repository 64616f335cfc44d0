"""On random delegation trees: wrapping is reversible, changes no ordinary output, and captures the true stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eagle_adapters import explain, unwrap, wrap
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect.anatomy import resolve
from eagle_adapters.testing.trees import WORDS, Tree, trees

seeds = st.integers(0, 9)


def footprint(model: Any) -> Any:
    """Everything a wrapping could leave behind: class dicts with their order, instance dicts, hooks."""
    classes = {type(module) for module in model.modules()}
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    return {cls: list(vars(cls).items()) for cls in classes}, list(vars(model)), hooks


def words(seed: int) -> torch.Tensor:
    return torch.randint(WORDS, (2, 5), generator=torch.Generator().manual_seed(seed))


def true_stream(model: Any, tree: Tree, ids: torch.Tensor) -> Mapping[int, torch.Tensor]:
    """The stream by the definition of the tree's own layers, with no hook: embedding, then layer after layer."""
    decoder = resolve(model, tree.decoder or "")
    plan = explain(model).plan
    anatomy = plan.anatomy  # type: ignore[union-attr]
    state = resolve(model, anatomy.embedding.path)(ids)
    layers = resolve(model, anatomy.layers.path)
    states = {0: state}
    for number, layer in enumerate(layers.values() if hasattr(layers, "values") else layers):
        state = layer(state)
        states[number + 1] = state
    assert decoder is resolve(model, anatomy.decoder.path)
    return states


@settings(max_examples=60)
@given(trees(sound=True), seeds)
def test_wrap_then_unwrap_is_the_identity(tree: Tree, seed: int) -> None:
    model = tree.build(seed)
    before = footprint(model)
    wrap(model)
    assert footprint(model) != before
    wrap(model)
    unwrap(model)
    assert footprint(model) == before


@settings(max_examples=60)
@given(trees(sound=True), seeds)
def test_wrapping_changes_no_output_and_captures_the_true_stream(tree: Tree, seed: int) -> None:
    model, ids = tree.build(seed), words(seed)
    with torch.no_grad():
        expected = model(ids)
        wrap(model)
        try:
            idle = model(ids)
            with model.eagle3_capture(range(tree.num_layers + 1)) as states:
                busy = model(ids)
            truth = true_stream(model, tree, ids)
        finally:
            unwrap(model)
    assert torch.equal(idle, expected)
    assert torch.equal(busy, expected)
    for boundary in states.boundaries:
        assert torch.equal(states[boundary], truth[boundary])


@settings(max_examples=40)
@given(trees())
def test_what_cannot_be_read_is_refused_and_left_alone(tree: Tree) -> None:
    model = tree.build()
    before = footprint(model)
    if tree.code is None:
        unwrap(wrap(model))
    else:
        with pytest.raises(AdaptationError) as caught:
            wrap(model)
        assert caught.value.code == tree.code
    assert footprint(model) == before
