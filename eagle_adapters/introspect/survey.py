"""Survey a target: walk its nodes, gather the stacks of layers, choose the decoder, fill the `Anatomy`.

The same survey serves both agents, so that they cannot disagree on what counts as a decoder. It never looks inside a
list of layers beyond the first layer, so its cost follows the depth of the chain, not the number of modules.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import count
from typing import NoReturn

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import IntrospectionError
from eagle_adapters.introspect import facts
from eagle_adapters.introspect.anatomy import Agent, Anatomy, Fact, Link, Number
from eagle_adapters.introspect.choice import Stack, choose
from eagle_adapters.introspect.facts import Step, join
from eagle_adapters.introspect.nodes import Child, Node
from eagle_adapters.introspect.words import says_other

MAX_PATHS = 3
"""By how many paths a shared module is looked at; `choose` takes the one with the most evidence."""

_NUMBERED = re.compile(r"(.*?)(\d+)")


def survey(root: Node, agent: Agent, decoder: str | None = None) -> Anatomy:
    """The anatomy of the target `root`.

    Args:
        root: the target.
        agent: who reads it.
        decoder: path of the decoder, of its list of layers, or of a module around exactly one decoder.

    Raises:
        IntrospectionError: EA201 two equally good decoders, EA202 none, EA203 `decoder` names none.
    """
    stacks = list(_stacks(root, everything=decoder is not None))
    if decoder is not None:
        stacks = _asked(root, stacks, decoder)
    return _describe(choose(root.class_name, stacks, forced=decoder is not None), agent)


def is_layer_list(node: Node) -> bool:
    """Whether a node is a list of layers: children numbered alike (`0`, `1` or `layer_0`), one with parts."""
    children = node.children()
    matches = [_NUMBERED.fullmatch(child.name) for child in children]
    if not children or not all(matches) or len({match[1] for match in matches if match}) != 1:
        return False
    return any(child.node.dynamic or child.node.children() for child in children)


def _stacks(root: Node, *, everything: bool) -> Iterator[Stack]:
    """Lists of layers below the target, by the plainest paths to the owner: fewest foreign names, then shortest.

    Unless `everything` is asked for, modules under foreign names (vision, draft, ...) are looked into only when nothing
    was found elsewhere, or when the target declares its language model and it was not met yet: else they cannot win.
    """
    declared = _declared(root)
    found = False
    order = count()
    visits: Counter[Hashable] = Counter()
    queue: list[tuple[int, int, int, tuple[Step, ...], bool]] = []
    heapq.heappush(queue, (0, 0, next(order), (Step("", root, root.where),), False))
    while queue:
        foreign, depth, _, chain, inside = heapq.heappop(queue)
        step = chain[-1]
        if foreign and found and not everything and declared <= visits.keys():
            return
        visits[step.node.key] += 1
        if visits[step.node.key] > MAX_PATHS:
            continue
        inside = inside or step.node.key in declared
        if depth and is_layer_list(step.node):
            found = True
            name = step.path.rpartition(".")[2]
            yield Stack(chain[:-1], Child(name, step.node, step.where, step.others), inside)
            continue
        if step.node.dynamic:
            found = True
            yield Stack(chain, None, inside)
        above = {before.node.key for before in chain}
        for child in step.node.children():
            if child.node.key not in above:
                other = says_other(child.name) and not step.node.transparent
                below = (*chain, Step(join(step.path, child.name), child.node, child.where, child.others))
                heapq.heappush(queue, (foreign + other, depth + 1, next(order), below, inside))


def _unwrapped(root: Node) -> Node:
    """The target under its transparent wrappers."""
    node, wrappers = root, {root.key}
    while node.transparent:
        inner = next((child.node for child in node.children()), None)
        if inner is None or inner.key in wrappers:
            break
        node = inner
        wrappers.add(node.key)
    return node


def _declared(root: Node) -> set[Hashable]:
    """What the target itself says is its language model; the target as an answer says nothing."""
    node = _unwrapped(root)
    answers = (node.returned("get_language_model"), node.returned("get_decoder"))
    return {answer.key for answer in answers if answer is not None} - {root.key, node.key}


def _at(node: Node | None, path: str) -> Node | None:
    for name in filter(None, path.split(".")):
        node = node.attribute(name) if node is not None else None
    return node


def _asked(root: Node, stacks: list[Stack], decoder: str) -> list[Stack]:
    """The stacks that a path asks for: the owner itself, its list, or all inside a module.

    The path may start at the target or at the model under its transparent wrappers.
    """
    node = _at(root, decoder) or _at(_unwrapped(root), decoder)
    if node is None:
        _bad_choice(root, stacks, decoder, "no such module")
    exact = [stack for stack in stacks if stack.owner.node.key == node.key]
    exact = exact or [stack for stack in stacks if stack.layers is not None and stack.layers.node.key == node.key]
    inside = exact or [stack for stack in stacks if any(step.node.key == node.key for step in stack.chain)]
    if not inside:
        _bad_choice(root, stacks, decoder, f"a {node.class_name} without a list of layers")
    return inside


def _bad_choice(root: Node, stacks: list[Stack], decoder: str, found: str) -> NoReturn:
    owners = ", ".join(dict.fromkeys(repr(stack.owner.path) for stack in stacks)) or "none"
    raise IntrospectionError(
        Diagnostic(
            "EA203",
            f"decoder={decoder!r} names no decoder in {root.class_name}",
            expected=f"one of {owners}",
            found=found,
            where=decoder,
            next_step="choose one of the expected paths, or leave decoder out",
        )
    )


def _describe(stack: Stack, agent: Agent) -> Anatomy:
    chain = stack.chain
    head = facts.find_head(chain)
    embedding = facts.find_embedding(chain)
    return Anatomy(
        target=chain[0].node.class_name,
        agent=agent,
        chain=tuple(
            Link(step.path, step.node.class_name, step.where, step.node.transparent, step.node.dynamic, step.others)
            for step in chain
        ),
        layers=None if stack.layers is None else Fact(stack.path, stack.layers.where, stack.layers.node.class_name),
        num_layers=_num_layers(stack.path, stack.layers),
        hidden_size=facts.find_hidden_size(chain, embedding[1] if embedding else None),
        embedding=embedding[0] if embedding else None,
        head=head,
        final_norm=facts.find_final_norm(chain),
        logits=facts.find_logits(chain, head),
        capture=facts.find_capture(chain[-1]),
    )


def _num_layers(path: str, layers: Child | None) -> Number | None:
    if layers is None or layers.node.items is None:
        return None
    return Number(layers.node.items, f"length of {path}")
