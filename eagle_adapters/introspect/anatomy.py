"""What introspection finds: the `Anatomy` of a target, the same whether read from live modules or from source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Agent(StrEnum):
    """Who read the target: the walker over module objects, or the walker over class definitions."""

    LIVE = "live"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Link:
    """One object on the chain wrapper -> ... -> decoder.

    Attributes:
        path: dotted attribute path from the target; the target itself has the empty path.
        class_name: `module:QualName` of its class.
        where: where the link was found: an attribute (`attribute language_model`) or `file:line`.
        transparent: a wrapper that only passes calls on (PEFT, DDP, FSDP, `torch.compile`).
        dynamic: the class is chosen by the checkpoint; source alone does not tell what is inside.
        others: other classes that the config may choose here (source agent only); the anatomy follows `class_name`.
    """

    path: str
    class_name: str
    where: str
    transparent: bool = False
    dynamic: bool = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A module or value that was found, with the place it was found at.

    Attributes:
        path: dotted attribute path from the target.
        where: an attribute, a config field, or `file:line`.
        class_name: `module:QualName` of its class, where known.
    """

    path: str
    where: str
    class_name: str | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """A number that was found, with the place it was found at."""

    value: int
    where: str


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The parts of a target that the EAGLE-3 interface needs.

    Attributes:
        target: `module:QualName` of the target's class.
        agent: who read it.
        chain: from the target (empty path) to the decoder, at least one link.
        layers: the decoder's list of layers; None only when the chain ends in a dynamic link.
        num_layers: N; the source agent does not know it.
        hidden_size: width of the residual stream.
        embedding: the token embedding.
        head: the output head (`lm_head`).
        final_norm: the norm after the last layer.
        logits: what turns the last state into logits (`logits_processor`, `compute_logits`, or the head itself).
        capture: how the decoder already captures intermediate states, or None when it does not.
        owners: class name -> class object, for the links of a live target; empty for the source agent.
    """

    target: str
    agent: Agent
    chain: tuple[Link, ...]
    layers: Fact | None
    num_layers: Number | None = None
    hidden_size: Number | None = None
    embedding: Fact | None = None
    head: Fact | None = None
    final_norm: Fact | None = None
    logits: Fact | None = None
    capture: Fact | None = None
    owners: Mapping[str, type] = field(default_factory=dict, compare=False, repr=False)

    @property
    def decoder(self) -> Link:
        """The last link of the chain: the module that owns the layers."""
        return self.chain[-1]

    @property
    def adapted(self) -> Link:
        """The first link that is not a transparent wrapper: the object whose class an engine knows as the target."""
        return next(link for link in self.chain if not link.transparent)

    @property
    def dynamic(self) -> bool:
        """Whether the checkpoint chooses the decoder's class, so that the chain ends before the layers."""
        return self.decoder.dynamic

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; `owners` is left out."""

        def fact(value: Fact | None) -> dict[str, Any] | None:
            return None if value is None else {"path": value.path, "class": value.class_name, "where": value.where}

        def number(value: Number | None) -> dict[str, Any] | None:
            return None if value is None else {"value": value.value, "where": value.where}

        return {
            "target": self.target,
            "agent": self.agent.value,
            "chain": [link_as_dict(link) for link in self.chain],
            "layers": fact(self.layers),
            "num_layers": number(self.num_layers),
            "hidden_size": number(self.hidden_size),
            "embedding": fact(self.embedding),
            "head": fact(self.head),
            "final_norm": fact(self.final_norm),
            "logits": fact(self.logits),
            "capture": fact(self.capture),
        }


def link_as_dict(link: Link) -> dict[str, Any]:
    """The JSON form of one link; flags and other classes are left out while there are none."""
    out: dict[str, Any] = {"path": link.path, "class": link.class_name, "where": link.where}
    out |= {name: True for name in ("transparent", "dynamic") if getattr(link, name)}
    return out | ({"others": list(link.others)} if link.others else {})


def class_name(cls: type) -> str:
    """`module:QualName`, the way classes are named in anatomies and plans."""
    return f"{cls.__module__}:{cls.__qualname__}"


def resolve(model: Any, path: str) -> Any:
    """The object at a dotted attribute path of an anatomy; the empty path is the model itself."""
    for part in path.split(".") if path else ():
        model = getattr(model, part)
    return model
