"""Every class of SGLang that has `set_eagle3_layers_to_capture`: its draft's ids are read in one way, or it is refused.

The classes are found in the installed sources, imported, planned, and the planned setter is run on a skeleton of the
class's own chain. Two things are shown of each: which boundaries it switches on, and that the forward which then runs
keeps boundaries. No model is built.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from sglang_cases import HERE

from eagle_adapters.backends.sglang import BACKEND
from eagle_adapters.backends.sglang.own import own_capture
from eagle_adapters.backends.sglang.request import CONVENTION_ENV, remember
from eagle_adapters.codegen.sources import MethodSource, class_source_at
from eagle_adapters.errors import BoundaryError
from eagle_adapters.plan import Refusal

# SGLang warns about absent accelerators when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore")

SETTER = "set_eagle3_layers_to_capture"
LAYERS = 32
REFUSED = {
    # drafts: one layer of another class, or a forward that is fed a target's states
    "DeepseekV3ForCausalLMNextN": "EA202",
    "Glm4MoeForCausalLMNextN": "EA202",
    "Glm4MoeLiteForCausalLMNextN": "EA202",
    "Glm5NextForConditionalGenerationNextN": "EA202",
    "GlmMoeDsaForCausalLMNextN": "EA202",
    "LongcatFlashForCausalLMNextN": "EA202",
    "LlamaForCausalLMEagle": "EA425",
    "LlamaForCausalLMEagle3": "EA425",
    "Qwen2ForCausalLMEagle": "EA425",
    "MistralLarge3ForCausalLMEagle": "EA421",
    # no logits: it embeds
    "EmbeddingGemmaModel": "EA540",
    # its forward changes what the base's forward gave it
    "Gemma4UnifiedForConditionalGeneration": "EA540",
    "Qwen4ExpForConditionalGeneration": "EA540",
    # runs a model of another framework
    "MindSporeForCausalLM": "EA540",
}
LAST_OUT_OF_REACH = {"Glm5NextForConditionalGeneration"}


def root() -> Path:
    spec = find_spec("sglang")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]).parent


@cache
def native_classes() -> dict[str, str]:
    """Entry class -> module, for the classes that define or inherit the hook."""
    found = {}
    for path in sorted((root() / "sglang/srt/models").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        entries = {
            name.id
            for node in tree.body
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == "EntryClass" for target in node.targets)
            for name in ast.walk(node.value)
            if isinstance(name, ast.Name)
        }
        for name in entries:
            cls = class_source_at(root(), f"sglang.srt.models.{path.stem}", name)
            if cls is not None and cls.definition(SETTER) is not None:
                found[name] = f"sglang.srt.models.{path.stem}"
    return found


@pytest.fixture(scope="module")
def plans():
    """Class -> its plan or refusal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SGLANG_USE_CPU_ENGINE", "1")
        patch.setattr(sys, "path", [str(HERE / "standin"), *sys.path])
        found = {name: getattr(importlib.import_module(module), name) for name, module in native_classes().items()}
        yield {name: BACKEND.plan(cls) for name, cls in found.items()}


def skeleton(plan):
    """The chain of the plan's class without weights, and its decoder."""
    target = SimpleNamespace()
    for path in (plan.anatomy.decoder.path, *(link.path for link in plan.anatomy.chain)):
        place = target
        for name in path.split(".") if path else ():
            if not hasattr(place, name):
                setattr(place, name, SimpleNamespace(logits_processor=SimpleNamespace()))
            place = getattr(place, name)
    target.logits_processor = SimpleNamespace()
    decoder = target
    for name in plan.anatomy.decoder.path.split("."):
        decoder = getattr(decoder, name)
    setattr(decoder, plan.anatomy.layers.path.rpartition(".")[2], [SimpleNamespace() for _ in range(LAYERS)])
    return target, decoder


def setter_of(plan):
    return next(edit.source for edit in plan.edits if edit.name == SETTER)


def boundaries(plan, ids):
    """What the planned setter switches on for `ids`."""
    scope = {}
    exec(setter_of(plan), scope)
    target, decoder = skeleton(plan)
    remember(None)
    scope[SETTER](target, ids)
    marked = [n for n, layer in enumerate(decoder.layers) if getattr(layer, "_is_layer_to_capture", False)]
    assert marked in ([], [b for b in decoder.layers_to_capture if b < LAYERS])
    return decoder.layers_to_capture


def test_each_is_read_to_the_same_boundaries_or_refused(plans, monkeypatch):
    monkeypatch.delenv(CONVENTION_ENV, raising=False)
    refused, read, without_last = {}, set(), set()
    for name, plan in plans.items():
        if isinstance(plan, Refusal):
            refused[name] = plan.reasons[0].code
            continue
        for ids in (None, [1, LAYERS // 2 - 1, LAYERS - 4], [2, LAYERS // 2, LAYERS - 3]):
            assert boundaries(plan, ids) == [2, LAYERS // 2, LAYERS - 3], (name, ids)
        if "last='none'" in setter_of(plan):
            with pytest.raises(BoundaryError, match="EA542"):
                boundaries(plan, [5, 16, LAYERS])
            without_last.add(name)
        else:
            assert boundaries(plan, [5, 16, LAYERS]) == [5, 16, LAYERS], name
        read.add(name)
    assert refused == REFUSED
    assert without_last == LAST_OUT_OF_REACH
    assert (len(plans), len(read), len(refused)) == (71, 57, 14)


def test_the_forward_that_runs_keeps_boundaries(plans):
    kinds = Counter()
    for name, plan in plans.items():
        if isinstance(plan, Refusal):
            continue
        decoder = plan.owners[plan.anatomy.decoder.class_name]
        edits = [edit for edit in plan.edits if edit.kind == "instrument_forward"]
        text = edits[0].source if edits else None
        if text is None:
            module, _, cls = plan.anatomy.decoder.class_name.partition(":")
            text = class_source_at(root(), module, cls).method("forward").text
        own = own_capture(MethodSource("forward", decoder.__qualname__, text, "", 1))
        if own is None:
            # generated as a whole: boundary 0 before the loop, boundary i + 1 after layer i
            assert "layers_to_capture" in text, name
            assert edits, name
            kinds["generated"] += 1
        else:
            assert own.reaches_last or name in LAST_OUT_OF_REACH, name
            kinds["completed" if edits else "as it is"] += 1
    assert kinds["completed"] > kinds["generated"] > 0


def test_the_native_setters_are_as_many_as_said():
    bodies = set()
    for name, module in native_classes().items():
        cls = class_source_at(root(), module, name)
        assert cls is not None
        definition = cls.definition(SETTER)
        assert definition is not None
        bodies.add("\n".join(map(ast.unparse, definition[1].body)))
    assert len(bodies) == 16
