"""Carry out a plan on the running classes: everything is checked first, then all of it happens or nothing.

What was changed is kept in one ledger, so that plans which share a class (two wrappers over one decoder) share its
edits, and undoing the last of them leaves the class's `__dict__` as it was.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eagle_adapters.codegen.compile import compile_method, source_digest
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.plan import AddAttribute, AddMethod, AliasConfig, Edit, Plan

LOCK = threading.RLock()
"""Held while a plan is made and applied, so that two threads never adapt one class at once."""

_ABSENT: Any = object()


@dataclass(eq=False, slots=True)
class Adaptation:
    """A plan that has been applied; `revert` takes it back.

    Attributes:
        plan: what was done.
        active: false once it was reverted.
    """

    plan: Plan
    active: bool = True


@dataclass(slots=True)
class _Entry:
    """One changed class attribute: the edit, what stood there before, and the adaptations that need it."""

    edit: Edit
    before: Any
    holders: list[Adaptation] = field(default_factory=list)


_ledger: dict[tuple[type, str], _Entry] = {}


def apply_plan(plan: Plan, owners: Mapping[str, type] | None = None) -> Adaptation:
    """Apply every edit of `plan`, or none.

    Args:
        plan: the edits.
        owners: class name -> class; added to the plan's own. Other names are looked up in the loaded modules.

    Returns:
        The adaptation. A plan whose edits are all in place already changes nothing and shares them.

    Raises:
        AdaptationError: EA401 the plan does not fit a class as it is now, EA402 a class is adapted in another way,
            EA405 generated code does not compile. Nothing was changed.
    """
    known = {**plan.owners, **(owners or {})}
    with LOCK:
        prepared = [(edit, _owner(edit, known), _prepare(edit, known)) for edit in plan.edits]
        adaptation = Adaptation(plan)
        try:
            for edit, owner, value in prepared:
                _install(edit, owner, value, adaptation)
        except BaseException:
            _release(adaptation)
            raise
        return adaptation


def revert(adaptation: Adaptation) -> None:
    """Take an adaptation back; edits that another adaptation shares stay. A second call does nothing."""
    with LOCK:
        if adaptation.active:
            _release(adaptation)
            adaptation.active = False


def applied_edit(owner: type, name: str) -> Edit | None:
    """The edit that put `name` on `owner` itself (not on a base class), or None; planners reuse it."""
    entry = _ledger.get((owner, name))
    return None if entry is None else entry.edit


def adaptations_of(owner: type) -> Iterator[Adaptation]:
    """The active adaptations that changed `owner` or a base of it, each once."""
    seen: list[Adaptation] = []
    for (cls, _), entry in list(_ledger.items()):
        if issubclass(owner, cls):
            for holder in entry.holders:
                if holder not in seen:
                    seen.append(holder)
                    yield holder


def _install(edit: Edit, owner: type, value: Any, adaptation: Adaptation) -> None:
    key = (owner, edit.name)
    entry = _ledger.get(key)
    if entry is None:
        entry = _Entry(edit, vars(owner).get(edit.name, _ABSENT))
        setattr(owner, edit.name, value)
        _ledger[key] = entry
    entry.holders.append(adaptation)


def _release(adaptation: Adaptation) -> None:
    for (owner, name), entry in reversed(list(_ledger.items())):
        if adaptation not in entry.holders:
            continue
        entry.holders.remove(adaptation)
        if entry.holders:
            continue
        del _ledger[owner, name]
        if entry.before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, entry.before)


def _owner(edit: Edit, known: Mapping[str, type]) -> type:
    owner = known.get(edit.owner)
    if owner is None:
        module_name, _, qualname = edit.owner.partition(":")
        found: Any = sys.modules.get(module_name)
        for part in qualname.split("."):
            found = getattr(found, part, None)
        owner = found
    if not isinstance(owner, type):
        raise AdaptationError(
            Diagnostic(
                "EA401",
                f"the class {edit.owner} of the plan is not loaded",
                expected="a loaded class",
                found=repr(owner),
                next_step="import its module first, or plan again for the target you have",
            )
        )
    return owner


def _prepare(edit: Edit, known: Mapping[str, type]) -> Any:
    """Check one edit against its class and make the value that will be set; changes nothing."""
    owner = _owner(edit, known)
    entry = _ledger.get((owner, edit.name))
    if entry is not None:
        if entry.edit == edit:
            return vars(owner)[edit.name]
        raise AdaptationError(
            Diagnostic(
                "EA402",
                f"{edit.owner}.{edit.name} is already adapted in another way",
                expected=_text(edit),
                found=_text(entry.edit),
                next_step="eagle_adapters.unwrap the target that was adapted first",
            )
        )
    present = vars(owner).get(edit.name, _ABSENT)
    if isinstance(edit, AddMethod | AddAttribute | AliasConfig):
        if present is not _ABSENT:
            raise _unfit(edit, f"no `{edit.name}` in the class itself", f"{present!r}")
        if isinstance(edit, AddAttribute):
            return edit.value
        if isinstance(edit, AliasConfig):
            return property(_Alias(edit.original), doc=f"The field `{edit.original}` under the name that is read here.")
        return compile_method(edit.source, edit.name, owner)
    original = inspect.unwrap(present) if callable(present) else None
    digest = method_digest(original)
    if digest != edit.original_sha256:
        raise _unfit(edit, f"the source with sha256 {edit.original_sha256[:12]}", f"sha256 {(digest or 'none')[:12]}")
    return compile_method(edit.source, edit.name, owner, getattr(original, "__globals__", None))


def method_digest(function: Any) -> str | None:
    """The sha256 of a function's dedented source text, or None when it has no source."""
    try:
        return source_digest(textwrap.dedent(inspect.getsource(function)))
    except (TypeError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class _Alias:
    original: str

    def __call__(self, config: Any) -> Any:
        return getattr(config, self.original)


def _text(edit: Edit) -> str:
    return getattr(edit, "source", None) or repr(getattr(edit, "value", getattr(edit, "original", "")))


def _unfit(edit: Edit, expected: str, found: str) -> AdaptationError:
    return AdaptationError(
        Diagnostic(
            "EA401",
            f"the plan does not fit {edit.owner}.{edit.name} as it is now",
            expected=expected,
            found=found,
            next_step="plan again for the installed version",
        )
    )
