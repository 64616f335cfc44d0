"""What an engine backend offers, and how one is found: by name, or by the module a target's class comes from."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from eagle_adapters.contract import Engine
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import ContractError
from eagle_adapters.plan import Plan, Refusal


class Backend(Protocol):
    """One engine: it makes plans for targets of that engine."""

    name: str

    def version(self) -> str | None:
        """The installed version, found without importing the engine; None when it is not installed."""

    def plan(self, target: Any, *, decoder: str | None = None) -> Plan | Refusal:
        """The edits that make a model, or a model class, speak EAGLE-3, or the reasons why that cannot be."""

    def attach(self, target: Any, plan: Plan) -> None:
        """Prepare a live model after its plan was applied (a class needs nothing)."""

    def detach(self, target: Any, plan: Plan) -> None:
        """Undo `attach`."""


def backend(engine: str) -> Backend:
    """The backend of an engine.

    Raises:
        ContractError: EA306, there is no such engine.
    """
    if engine not in set(Engine):
        raise ContractError(
            Diagnostic("EA306", f"there is no engine {engine!r}", expected=", ".join(Engine), found=repr(engine))
        )
    found: Backend = importlib.import_module(f"eagle_adapters.backends.{engine}").BACKEND
    return found


def engine_of(target: Any) -> str:
    """The engine a model or class belongs to: `vllm` or `sglang` by its module, else `transformers`."""
    cls = target if isinstance(target, type) else type(target)
    for base in cls.__mro__:
        package = base.__module__.partition(".")[0]
        if package in (Engine.VLLM, Engine.SGLANG):
            return package
    return Engine.TRANSFORMERS


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, without importing it, or None."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
