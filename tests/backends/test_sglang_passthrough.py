"""The forward of a causal model of SGLang, rewritten to hand captured states to its logits processor."""

from __future__ import annotations

import textwrap

import pytest

from eagle_adapters.backends.sglang.passthrough import hands_states_on, pass_states_on, running_forward
from eagle_adapters.codegen.sources import MethodSource, class_source_at
from eagle_adapters.errors import AdaptationError

FLAT = """
def forward(self, input_ids, positions, forward_batch, input_embeds=None):
    hidden_states = self.model(input_ids, positions, forward_batch, input_embeds)
    if self.pp_group.is_last_rank:
        return self.logits_processor(input_ids, hidden_states, self.lm_head, forward_batch)
    return hidden_states
"""
MULTIMODAL = """
def forward(self, input_ids, positions, forward_batch, get_embedding=False):
    hidden_states = general_mm_embed_routine(input_ids=input_ids, language_model=self.model, positions=positions)
    if not get_embedding:
        return self.logits_processor(input_ids, hidden_states, self.lm_head, forward_batch)
    return self.pooler(hidden_states, forward_batch)
"""
SCALED = """
def forward(self, input_ids, positions, forward_batch):
    hidden_states = self.model(input_ids, positions, forward_batch)
    hidden_states = hidden_states / self.scale
    return self.logits_processor(input_ids, hidden_states.float(), self.lm_head, forward_batch)
"""
NATIVE = """
def forward(self, input_ids, positions, forward_batch):
    hidden_states = self.model(input_ids, positions, forward_batch)
    aux_hidden_states = None
    if self.capture_aux_hidden_states:
        hidden_states, aux_hidden_states = hidden_states
    return self.logits_processor(input_ids, hidden_states, self.lm_head, forward_batch, aux_hidden_states)
"""
FORGETFUL = """
def forward(self, input_ids, positions, forward_batch):
    hidden_states = self.model(input_ids, positions, forward_batch)
    states = None
    if self.capture_aux_hidden_states:
        hidden_states, states = hidden_states
    return self.logits_processor(input_ids, hidden_states, self.lm_head, forward_batch)
"""
STRANGE = """
def forward(self, input_ids, positions, forward_batch):
    return self.logits_processor(input_ids, self.model(input_ids), self.lm_head, forward_batch)
"""


def method(text):
    return MethodSource("forward", "toy:Model", textwrap.dedent(text).lstrip(), "toy.py", 1)


class Toy:
    scale = 2
    lm_head = "head"

    def __init__(self, states):
        self.states = states
        self.capture_aux_hidden_states = states is not None
        self.pp_group = type("Group", (), {"is_last_rank": True})

    def model(self, *args, **kwargs):
        return (8, self.states) if self.states is not None else 8

    def logits_processor(self, ids, hidden, head, batch, aux_hidden_states=None):
        return hidden, aux_hidden_states


@pytest.mark.parametrize("text", [FLAT, MULTIMODAL, FORGETFUL], ids=["flat", "multimodal", "forgetful"])
@pytest.mark.parametrize("states", [None, ["a", "b"]])
def test_states_reach_the_processor(text, states):
    assert not hands_states_on(method(text))
    scope = {"general_mm_embed_routine": lambda language_model, **kwargs: language_model()}
    exec(pass_states_on(method(text)), scope)
    assert scope["forward"](Toy(states), "ids", "positions", "batch") == (8, states)


@pytest.mark.parametrize("states", [None, ["a", "b"]])
def test_states_are_taken_out_before_the_hidden_state_is_scaled(states):
    scope = {}
    exec(pass_states_on(method(SCALED.replace(".float()", ".conjugate()"))), scope)
    assert scope["forward"](Toy(states), "ids", "positions", "batch") == (4, states)


def test_a_forward_that_does_so_itself_is_seen():
    assert hands_states_on(method(NATIVE))


def test_a_strange_forward_is_refused_with_its_place():
    with pytest.raises(AdaptationError) as caught:
        pass_states_on(method(STRANGE))
    assert caught.value.code == "EA546"
    assert "toy.py:1" in str(caught.value)


BASES = """
class Base:
    def forward(self, ids):
        return self.logits_processor(ids)

class Scaled(Base):
    def forward(self, ids):
        ids = ids * self.scale
        return super().forward(ids)

class Changed(Base):
    def forward(self, ids):
        return super().forward(ids) + 1
"""


@pytest.mark.parametrize(("name", "owner"), [("Base", "Base"), ("Scaled", "Base"), ("Changed", "Changed")])
def test_a_forward_that_only_hands_on_is_looked_through(tmp_path, name, owner):
    (tmp_path / "toy.py").write_text(BASES, "utf-8")
    assert running_forward(class_source_at(tmp_path, "toy", name)).owner == f"toy:{owner}"
