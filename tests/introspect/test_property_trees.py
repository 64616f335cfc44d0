"""On the same random tree, the live and the source agent find the same, and what is true."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from hypothesis import given, settings

from eagle_adapters.errors import IntrospectionError
from eagle_adapters.introspect import inspect_class, inspect_model
from eagle_adapters.testing.trees import WORDS, trees


def outcome(inspect, *args, **kwargs):
    try:
        anatomy = inspect(*args, **kwargs)
    except IntrospectionError as error:
        return {"code": error.code}
    parts = ("layers", "embedding", "head", "final_norm", "logits")
    found = {name: getattr(anatomy, name) for name in parts}
    return {
        "chain": [(link.path, link.class_name) for link in anatomy.chain],
        "owners": anatomy.decoder.path,
        **{name: fact and (fact.path, fact.class_name) for name, fact in found.items()},
    }


@settings(max_examples=80, deadline=None)
@given(trees())
def test_both_agents_agree_and_are_right(tree):
    model = tree.build()
    with tempfile.TemporaryDirectory() as folder:
        path = tree.write(Path(folder))
        from_source = outcome(inspect_class, f"{path}:{tree.target}")
    live = outcome(inspect_model, model)
    assert live == from_source
    if tree.code is not None:
        assert live == {"code": tree.code}
    else:
        assert live["owners"] == tree.decoder
        assert inspect_model(model).num_layers.value == tree.num_layers


@settings(max_examples=40, deadline=None)
@given(trees(sound=True))
def test_a_sound_tree_runs_and_its_seed_decides_its_weights(tree):
    ids = torch.arange(6).reshape(2, 3)
    with torch.no_grad():
        logits = tree.build(3)(ids)
        again = tree.build(3)(ids)
    assert logits.shape == (2, 3, WORDS)
    assert torch.equal(logits, again)
    assert logits.isfinite().all()
