"""Choose the text decoder among the stacks of layers in a target, by named evidence; refuse when it does not decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import IntrospectionError
from eagle_adapters.introspect.facts import Step, embedding_of, head_of, join
from eagle_adapters.introspect.nodes import Child
from eagle_adapters.introspect.words import BLOCK, LAYER_LISTS, says_other, says_text, words_of

MARGIN = 2
"""The best stack must lead by this much; less is two equally good answers."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A list of layers and the chain to its owner.

    Attributes:
        chain: from the target to the owner.
        layers: the list in the owner; None when the owner's class is chosen by the checkpoint.
        declared: whether `get_language_model()` or `get_decoder()` points here.
    """

    chain: tuple[Step, ...]
    layers: Child | None
    declared: bool

    @property
    def owner(self) -> Step:
        """The decoder, if this stack is chosen."""
        return self.chain[-1]

    @property
    def path(self) -> str:
        """The path of the list, or of the owner when the list is unknown."""
        return self.owner.path if self.layers is None else join(self.owner.path, self.layers.name)

    @property
    def segments(self) -> list[str]:
        """The names on the way to the list, transparent wrappers left out."""
        names = [
            step.path.rpartition(".")[2]
            for before, step in zip(self.chain, self.chain[1:], strict=False)
            if not before.node.transparent
        ]
        return names if self.layers is None else [*names, self.layers.name]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A stack with the evidence for and against it."""

    stack: Stack
    score: int
    evidence: tuple[str, ...]
    possible: bool

    def __str__(self) -> str:
        return f"{self.stack.path} ({', '.join(self.evidence) or 'no evidence'})"


def weigh(stack: Stack) -> Verdict:
    """The evidence that a stack is the text decoder."""
    score = 0
    evidence: list[str] = []

    def say(weight: int, text: str) -> None:
        nonlocal score
        score += weight
        evidence.append(text)

    dynamic = stack.layers is None
    other = [name for name in stack.segments if says_other(name)]
    kinds = [step.node.class_name.rpartition(":")[2] for step in stack.chain[1:] if not step.node.transparent]
    other_kinds = [kind for kind in kinds if says_other(kind)]
    own = dynamic or embedding_of(stack.owner) is not None
    inherited = not own and any(embedding_of(step) for step in stack.chain)
    beside = not own and not inherited and _embedding_beside(stack)
    if stack.declared:
        say(6, "declared by the target")
    if own:
        say(4, "chosen by the checkpoint" if dynamic else "has a token embedding")
    elif inherited:
        say(2, "a token embedding above it")
    elif beside:
        say(1, "a token embedding in a part of it")
    if dynamic or any(head_of(step) for step in stack.chain):
        say(3, "an output head on the way" if not dynamic else "may hold the output head")
    if any(says_text(name) for name in stack.segments):
        say(2, "named as text")
    for name in other:
        say(-8, f"{name!r} names another modality or a draft")
    for kind in other_kinds:
        say(-4, f"class {kind} names another modality or a draft")
    if any(says_text(kind) for kind in kinds):
        say(1, "class named as text")
    if "encoder" in words_of(stack.owner.path.rpartition(".")[2]):
        say(-2, "an encoder")
    elif "decoder" in words_of(stack.owner.path.rpartition(".")[2]):
        say(2, "a decoder")
    if dynamic:
        say(6, "a whole model")
    elif stack.layers is not None:
        if stack.layers.name in LAYER_LISTS:
            say(2, f"list named {stack.layers.name!r}")
        if _holds_blocks(stack.layers):
            say(2, "its items look like decoder layers")
        if stack.owner.node.uses((stack.layers.name,)):
            say(2, "its forward uses the list")
    possible = (
        (own or inherited or beside or stack.declared) and (not other or stack.declared) and (own or not other_kinds)
    )
    return Verdict(stack, score, tuple(evidence), possible)


def _embedding_beside(stack: Stack) -> bool:
    owner = stack.owner
    children = () if stack.layers is None else owner.node.children()
    return any(embedding_of(Step(child.name, child.node, "")) for child in children if not says_other(child.name))


def _holds_blocks(layers: Child) -> bool:
    for item in layers.node.children():
        parts = item.node.children()
        if parts:
            return any(words_of(part.name) & BLOCK for part in parts)
    return False


def choose(target: str, stacks: Sequence[Stack], *, forced: bool = False) -> Stack:
    """The stack that is the text decoder.

    Args:
        target: class name of the target, for messages.
        stacks: all stacks found, or those the caller asked for.
        forced: the caller named the decoder; evidence only breaks ties.

    Raises:
        IntrospectionError: EA201 two equally good answers, EA202 none.
    """
    verdicts = sorted(map(weigh, _whole(stacks)), key=lambda verdict: -verdict.score)
    best: dict[object, Verdict] = {}
    for verdict in verdicts:  # the same list seen from two owners: the better owner, else the deeper one
        layers = verdict.stack.layers
        key = verdict.stack.owner.node.key if layers is None else layers.node.key
        seen = best.get(key)
        if seen is None or (seen.score == verdict.score and len(seen.stack.chain) < len(verdict.stack.chain)):
            best[key] = verdict
    possible = [verdict for verdict in best.values() if verdict.possible or forced]
    possible.sort(key=lambda verdict: -verdict.score)
    if not possible:
        _none(target, verdicts)
    rivals = [verdict for verdict in possible if possible[0].score - verdict.score < MARGIN]
    if len(rivals) > 1:
        _two(target, rivals)
    return possible[0].stack


def _whole(stacks: Sequence[Stack]) -> list[Stack]:
    """The stacks without those that hold a part of the layers of another one (a slice for a faster path, say)."""
    layers = [set[object]() if s.layers is None else {c.node.key for c in s.layers.node.children()} for s in stacks]
    return [
        stack for stack, own in zip(stacks, layers, strict=True) if not own or not any(own < all_ for all_ in layers)
    ]


def _none(target: str, verdicts: Sequence[Verdict]) -> NoReturn:
    raise IntrospectionError(
        Diagnostic(
            "EA202",
            f"no text decoder was found in {target}",
            expected="a list of decoder layers with a token embedding beside or above it",
            found="; ".join(map(str, verdicts)) or "no list of layers",
            where=target,
            next_step="name it with decoder='path.to.the.module' (--decoder on the command line)"
            if verdicts
            else "pass the whole model; layers must be held in a ModuleList, ModuleDict, list or dict",
        )
    )


def _two(target: str, rivals: Sequence[Verdict]) -> NoReturn:
    paths = [verdict.stack.path for verdict in rivals]
    raise IntrospectionError(
        Diagnostic(
            "EA201",
            f"{target} has {len(rivals)} equally good decoders: {', '.join(paths)}",
            expected="one stack with more evidence than the others",
            found="; ".join(map(str, rivals)),
            where=target,
            next_step=f"choose one, e.g. decoder={paths[0]!r} (--decoder on the command line)",
        )
    )
