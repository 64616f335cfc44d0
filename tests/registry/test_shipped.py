"""The data files that ship: valid, in agreement with the real classes, and with the page of known drafts."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from eagle_adapters.boundaries import ConventionSource, read_ids
from eagle_adapters.registry import convention_for, json_schema, load, read
from eagle_adapters.resources import data_root

ROOT = data_root()
FAMILIES = sorted(load().index.families)


def test_the_shipped_files_are_valid():
    _, report = read(ROOT)

    assert not len(report), str(report)


@pytest.mark.parametrize("kind", ["registry", "adapter"])
def test_the_exported_schema_accepts_the_shipped_files(kind):
    schema = json_schema(kind)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    paths = [ROOT / "registry.yaml"] if kind == "registry" else sorted(ROOT.glob("adapters/*/adapter.yaml"))
    assert paths
    for path in paths:
        errors = [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text("utf-8")))]
        assert not errors, f"{path}: {errors}"


@pytest.mark.parametrize("path", ["registry.yaml", *(f"adapters/{family}/adapter.yaml" for family in FAMILIES)])
def test_editors_find_the_schema(path):
    """The first line names a schema by a path that leads to the file that `make pages` writes."""
    first = (ROOT / path).read_text("utf-8").splitlines()[0]

    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    schema: Path = (ROOT / path).parent / first.removeprefix(prefix)
    kind = "registry" if path == "registry.yaml" else "adapter"
    assert json.loads(schema.read_text("utf-8")) == json_schema(kind)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tiny_config_builds_and_the_chain_leads_to_its_layers(family):
    """On the meta device: the class is the one the adapter names, and its chain ends at N layers."""
    import torch
    import transformers

    facts = load().adapters[family].engines["transformers"]
    fields = json.loads((ROOT / "adapters" / family / "tiny.json").read_text("utf-8"))
    config = transformers.AutoConfig.for_model(**fields)
    cls = getattr(importlib.import_module(facts.module), facts.architecture)
    with torch.device("meta"):
        decoder = model = cls(config)
    for name in facts.chain:
        decoder = getattr(decoder, name)

    stacks = {name: child for name, child in decoder.named_children() if isinstance(child, torch.nn.ModuleList)}
    num_layers = config.get_text_config(decoder=True).num_hidden_layers
    assert num_layers in {len(stack) for stack in stacks.values()}
    assert num_layers >= 7, "the default boundaries (2, N // 2, N - 3) need seven layers"
    assert model.config.architectures == [facts.architecture]


def test_a_known_draft_has_its_convention():
    assert convention_for("AQ-MedAI/Kimi-K25-eagle3") == "boundary"
    assert convention_for("cm00cm/Kimi-K2.7-Code-EAGLE3") == "layer_output"
    assert convention_for("nobody/unknown") is None


@pytest.mark.parametrize("name", sorted(load().index.drafts))
def test_no_known_draft_contradicts_the_rule_for_unknown_ones(name):
    """Where the ids alone decide (the exact default triple, or N among them), they agree with what is registered."""
    draft = load().index.drafts[name]

    reading = read_ids(draft.ids, draft.num_layers)

    assert reading.source in (ConventionSource.DEFAULT_TRIPLE, ConventionSource.LAST_AMONG_IDS)
    assert reading.convention is draft.convention
