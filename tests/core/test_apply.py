"""Plans on running classes: all or nothing, shared, reversible."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Sequence
from typing import Any

import pytest

from eagle_adapters.apply import adaptations_of, applied_edit, apply_plan, method_digest, revert
from eagle_adapters.codegen.compile import MARKER
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect.anatomy import class_name
from eagle_adapters.plan import AddAttribute, AddMethod, AliasConfig, Edit, InstrumentForward, Plan


class Base:
    """Gives `super()` something to find."""

    def greet(self) -> str:
        return "base"


class Target(Base):
    """What the plans change."""

    original = 1

    def forward(self, x: int) -> int:
        return x + 1


class Config:
    """A config with the field under another name."""

    image_token_id = 42


OWNERS = {class_name(cls): cls for cls in (Target, Config)}
TARGET, CONFIG = OWNERS
ADD = AddMethod(TARGET, "greet", "def greet(self):\n    return super().greet() + '!'\n", "test")
FLAG = AddAttribute(TARGET, "flag", True, "test")
ALIAS = AliasConfig(CONFIG, "image_token_index", "image_token_id", "test")


def instrument(source: str, digest: str | None = None) -> InstrumentForward:
    return InstrumentForward(TARGET, "forward", source, "test", digest or method_digest(Target.forward) or "")


TWICE = instrument("def forward(self, x):\n    return 2 * (x + 1)\n")


def plan(*edits: Edit) -> Plan:
    return Plan(TARGET, "transformers", "1", None, edits, owners=OWNERS)


@pytest.fixture(autouse=True)
def unchanged() -> Any:
    before = {cls: list(vars(cls).items()) for cls in OWNERS.values()}
    yield
    assert {cls: list(vars(cls).items()) for cls in OWNERS.values()} == before


def test_every_kind_of_edit_applies_and_is_undone() -> None:
    adaptation = apply_plan(plan(ADD, FLAG, ALIAS, TWICE))
    assert (Target().greet(), Target.flag, Config().image_token_index, Target().forward(1)) == ("base!", True, 42, 4)  # type: ignore[attr-defined]
    assert list(adaptations_of(Target)) == [adaptation]
    revert(adaptation)
    revert(adaptation)
    assert (Target().greet(), Target().forward(1)) == ("base", 2)


def test_generated_methods_are_readable() -> None:
    adaptation = apply_plan(plan(TWICE, AddMethod(TARGET, "broken", "def broken(self):\n    return 1 / 0\n", "test")))
    try:
        assert inspect.getsource(Target.forward) == TWICE.source
        assert getattr(Target.forward, MARKER) == TARGET
        with pytest.raises(ZeroDivisionError) as caught:
            Target().broken()  # type: ignore[attr-defined]
        assert "return 1 / 0" in "".join(traceback.format_exception(caught.value))
    finally:
        revert(adaptation)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (AddMethod(TARGET, "forward", "def forward(self): ...\n", ""), "EA401"),
        (AddAttribute(TARGET, "original", 2, ""), "EA401"),
        (AddMethod("nowhere:Class", "x", "def x(self): ...\n", ""), "EA401"),
        (instrument("def forward(self, x):\n    return x\n", "0" * 64), "EA401"),
        (AddMethod(TARGET, "x", "def x(self:\n", ""), "EA405"),
        (AddMethod(TARGET, "x", "def y(self): ...\n", ""), "EA405"),
    ],
)
def test_one_bad_edit_and_nothing_happens(bad: Edit, code: str) -> None:
    with pytest.raises(AdaptationError) as caught:
        apply_plan(plan(ADD, FLAG, bad))
    assert caught.value.code == code
    assert applied_edit(Target, "greet") is None


def test_a_class_that_refuses_halfway_is_rolled_back() -> None:
    class Meta(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            if name == "second":
                raise TypeError(name)
            super().__setattr__(name, value)

    class Guarded(metaclass=Meta):
        pass

    name = class_name(Guarded)
    edits = (AddAttribute(name, "first", 1, ""), AddAttribute(name, "second", 2, ""))
    before = dict(vars(Guarded))
    with pytest.raises(TypeError, match="second"):
        apply_plan(Plan(name, "transformers", "1", None, edits, owners={name: Guarded}))
    assert dict(vars(Guarded)) == before
    assert list(adaptations_of(Guarded)) == []


def test_plans_that_share_an_edit_keep_it_until_the_last_is_reverted() -> None:
    first, second = apply_plan(plan(ADD, FLAG)), apply_plan(plan(ADD))
    revert(first)
    assert not hasattr(Target, "flag")
    assert Target().greet() == "base!"
    revert(second)
    assert Target().greet() == "base"


def test_another_edit_of_the_same_name_is_refused() -> None:
    first = apply_plan(plan(ADD))
    try:
        with pytest.raises(AdaptationError, match="EA402"):
            apply_plan(plan(FLAG, AddMethod(TARGET, "greet", "def greet(self):\n    return ''\n", "test")))
        assert not hasattr(Target, "flag")
    finally:
        revert(first)


def test_threads_that_apply_and_revert_at_once_leave_no_trace() -> None:
    failures: list[BaseException] = []

    def work(edits: Sequence[Edit]) -> None:
        try:
            for _ in range(50):
                adaptation = apply_plan(plan(*edits))
                assert Target().greet() == "base!"
                revert(adaptation)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=([ADD, FLAG][: 1 + i % 2],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(adaptations_of(Target)) == []
