"""What will be done to a target, as data: a `Plan` of edits, or a `Refusal` with its reasons. It changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.introspect.anatomy import Anatomy


@dataclass(frozen=True, slots=True)
class AddMethod:
    """Add a method that the class does not define itself.

    Attributes:
        owner: `module:QualName` of the class.
        name: the method's name.
        source: its whole source text, starting with `def` (or a decorator such as `@property`) at column 0.
        why: what asks for it.
    """

    kind: ClassVar[str] = "add_method"
    owner: str
    name: str
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class AddAttribute:
    """Add a class attribute with a literal value (bool, int, str, None, or a tuple of these)."""

    kind: ClassVar[str] = "add_attribute"
    owner: str
    name: str
    value: Any
    why: str


@dataclass(frozen=True, slots=True)
class InstrumentForward:
    """Replace a decoder's method by the same method that also captures states.

    Attributes:
        owner: `module:QualName` of the class.
        name: the method's name.
        source: the whole new source text, at column 0.
        why: what asks for it.
        original_sha256: hash of the dedented source the new text was made from; apply refuses another source.
    """

    kind: ClassVar[str] = "instrument_forward"
    owner: str
    name: str
    source: str
    why: str
    original_sha256: str


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Replace a wrapper's method by one that also hands the captured states on. Fields as `InstrumentForward`."""

    kind: ClassVar[str] = "pass_through"
    owner: str
    name: str
    source: str
    why: str
    original_sha256: str


@dataclass(frozen=True, slots=True)
class AliasConfig:
    """Make a config field readable under the name the engine reads it by.

    Attributes:
        owner: `module:QualName` of the config class.
        name: the name the engine reads.
        original: the name the config has it under.
        why: what reads it.
    """

    kind: ClassVar[str] = "alias_config"
    owner: str
    name: str
    original: str
    why: str


@dataclass(frozen=True, slots=True)
class NormaliseIds:
    """Replace a setter by one that takes boundaries, whatever its native rule. Fields as `InstrumentForward`."""

    kind: ClassVar[str] = "normalise_ids"
    owner: str
    name: str
    source: str
    why: str
    original_sha256: str


Edit = AddMethod | AddAttribute | InstrumentForward | PassThrough | AliasConfig | NormaliseIds


@dataclass(frozen=True, slots=True)
class Plan:
    """The edits that make a target speak EAGLE-3 in one engine.

    Attributes:
        target: `module:QualName` of the target's class.
        engine: `transformers`, `vllm` or `sglang`.
        engine_version: the version the plan was made for.
        anatomy: the facts it rests on; None for a class whose parts are found when its methods are used.
        edits: in the order they are applied; an empty tuple means that the target is already complete.
        findings: what the contract check said before the plan (why each edit is there).
        owners: class name -> class object for classes that cannot be imported by name; not part of the data.
    """

    target: str
    engine: str
    engine_version: str
    anatomy: Anatomy | None
    edits: tuple[Edit, ...]
    findings: tuple[Diagnostic, ...] = ()
    owners: Mapping[str, type] = field(default_factory=dict, compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "target": self.target,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "edits": [edit_as_dict(edit) for edit in self.edits],
            "findings": [finding.as_dict() for finding in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a target cannot be adapted, as diagnostics (at least one)."""

    target: str
    engine: str
    reasons: tuple[Diagnostic, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "target": self.target,
            "engine": self.engine,
            "reasons": [reason.as_dict() for reason in self.reasons],
        }


def edit_as_dict(edit: Edit) -> dict[str, Any]:
    """The JSON form of one edit."""
    return {
        "kind": edit.kind,
        **{name: getattr(edit, name) for name in edit.__dataclass_fields__ if name != "kind"},
    }
