"""Compare a class or a model with the contract of an engine: presence, kind and signature of every piece."""

from __future__ import annotations

import inspect
from typing import Any

from eagle_adapters.contract.hooks import Contract, Hook, Kind, contract_for
from eagle_adapters.diagnostics import Diagnostic, Report, Severity

_MISSING: Any = object()


def check(target: Any, engine: str, version: str | None = None) -> Report:
    """Everything that `target` lacks or has wrong for EAGLE-3 in `engine`.

    Attributes that exist only on instances (`lm_head`, config fields) are checked on a model, not on a class.

    Args:
        target: a model, or its class.
        engine: `transformers`, `vllm` or `sglang`.
        version: the engine's version; None takes the newest contract.

    Returns:
        A report with codes EA301 (missing), EA302 (signature), EA303 (kind), EA304 (dead name), EA305 (attribute or
        config field). Optional pieces are warnings.

    Raises:
        ContractError: EA306, there is no contract for that engine or version.
    """
    contract = contract_for(engine, version)
    report = Report()
    for hook in contract:
        finding = _check_hook(target, hook, contract)
        if finding is not None:
            report.diagnostics.append(finding)
    return report


def _check_hook(target: Any, hook: Hook, contract: Contract) -> Diagnostic | None:
    cls = target if isinstance(target, type) else type(target)
    severity = Severity.ERROR if hook.required else Severity.WARNING
    if hook.kind is Kind.CONFIG:
        return None if isinstance(target, type) else _check_config(target, hook, severity)
    value = _find(target, hook.name)
    where = _where(value) or f"class {cls.__module__}.{cls.__qualname__}"
    if hook.kind is Kind.DEAD:
        if value is _MISSING or (hook.instead is not None and _find(target, hook.instead) is not _MISSING):
            return None
        return Diagnostic(
            "EA304",
            f"{cls.__qualname__}.{hook.name} is never called",
            Severity.WARNING,
            expected=f"`{hook.instead}`",
            found=f"`{hook.name}`",
            where=where,
            consequence="the engine falls back to its own default boundaries",
            next_step="eagle_adapters.wrap it, or rename the method",
        )
    if value is _MISSING:
        if isinstance(target, type) and hook.kind is Kind.ATTRIBUTE and not hook.required:
            return None
        code = "EA305" if hook.kind is Kind.ATTRIBUTE else "EA301"
        return Diagnostic(
            code,
            f"{cls.__qualname__} has no {hook.kind} `{hook.name}`",
            severity,
            expected=f"{hook.name}{hook.signature}" if hook.kind is Kind.METHOD else f"{hook.name}: {hook.signature}",
            found="nothing",
            where=where,
            consequence=f"read by {hook.called_by}, {hook.when}",
            next_step=f"eagle_adapters.wrap the target for {contract.engine}",
        )
    if hook.kind is Kind.METHOD:
        return _check_method(cls, value, hook, where)
    return None


def _find(target: Any, name: str) -> Any:
    """The attribute as the engine would see it, without running properties of the class."""
    static = inspect.getattr_static(target, name, _MISSING)
    if static is not _MISSING:
        return static
    try:
        return getattr(target, name, _MISSING)
    except Exception:
        # A property or `__getattr__` that raises is as good as missing for the engine.
        return _MISSING


def _check_method(cls: type, value: Any, hook: Hook, where: str) -> Diagnostic | None:
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    if not callable(function):
        return Diagnostic(
            "EA303",
            f"{cls.__qualname__}.{hook.name} is not a method",
            expected=f"{hook.name}{hook.signature}",
            found=type(value).__name__,
            where=where,
            next_step="make it a method with this signature",
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None  # a builtin without a signature cannot be judged
    bound = inspect.ismethod(function) or isinstance(value, staticmethod)
    for call in hook.calls:
        arguments = [None] * (call.positional + (0 if bound else 1))
        try:
            signature.bind(*arguments, **dict.fromkeys(call.keywords))
        except TypeError as error:
            return Diagnostic(
                "EA302",
                f"{cls.__qualname__}.{hook.name} cannot be called the way the engine calls it",
                expected=f"{hook.name}{hook.signature}",
                found=f"{hook.name}{signature}: {error}",
                where=where,
                consequence=f"called by {hook.called_by}, {hook.when}",
                next_step="change its parameters to this signature",
            )
    return None


def _check_config(target: Any, hook: Hook, severity: Severity) -> Diagnostic | None:
    config = getattr(target, "config", None)
    if config is None or getattr(config, hook.name, None) is not None:
        return None
    return Diagnostic(
        "EA305",
        f"{type(config).__qualname__} has no field `{hook.name}`",
        severity,
        expected=f"{hook.name}: {hook.signature}",
        found="nothing",
        where="config",
        consequence=f"read by {hook.called_by}, {hook.when}",
        next_step="eagle_adapters.wrap the target, or add the field to config.json",
    )


def _where(value: Any) -> str | None:
    function = inspect.unwrap(value) if callable(value) else value
    code = getattr(function, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
