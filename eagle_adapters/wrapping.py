"""`wrap`, `unwrap` and `explain`: the whole way from a model to an adapted model, and back."""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from eagle_adapters.apply import LOCK, Adaptation, adaptations_of, apply_plan, revert
from eagle_adapters.backends.base import backend, engine_of
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect.anatomy import class_name
from eagle_adapters.plan import Plan, Refusal, edit_as_dict

T = TypeVar("T")

_adaptations: MutableMapping[Any, Adaptation] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was done to a target, or would be done, and why.

    Attributes:
        target: `module:QualName` of its class.
        status: `adapted`, `adaptable` (wrap would do the edits), `complete` (nothing is missing) or `refused`.
        plan: the plan that was applied or would be, or the refusal.
    """

    target: str
    status: str
    plan: Plan | Refusal

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"target": self.target, "status": self.status, "plan": self.plan.as_dict()}

    def __str__(self) -> str:
        lines = [f"{self.target}: {self.status} for EAGLE-3 in {self.plan.engine}"]
        if isinstance(self.plan, Refusal):
            return "\n".join([*lines, *map(str, self.plan.reasons)])
        anatomy = self.plan.anatomy
        if anatomy is not None:
            lines += [f"  {link.path or 'the target'}: {link.class_name} ({link.where})" for link in anatomy.chain]
            depth = f", {anatomy.num_layers.value} layers" if anatomy.num_layers is not None else ""
            layers = "chosen by the checkpoint" if anatomy.layers is None else anatomy.layers.path
            lines.append(f"  layers: {layers}{depth}")
        for edit in self.plan.edits:
            lines.append(f"  {edit.kind} {edit.owner}.{edit.name}: {edit.why}")
            source = edit_as_dict(edit).get("source")
            lines += [f"    {line}".rstrip() for line in source.splitlines()] if source else []
        return "\n".join(lines)


def plan_for(target: Any, *, engine: str | None = None, decoder: str | None = None) -> Plan | Refusal:
    """What `wrap` would do to a model or a class; changes nothing.

    Args:
        target: a model or a model class.
        engine: `transformers`, `vllm` or `sglang`; None goes by the module of the class.
        decoder: dotted path of the text decoder, where it cannot be told from the others.

    Raises:
        ContractError: EA306, there is no such engine.
    """
    return backend(engine or engine_of(target)).plan(target, decoder=decoder)


def wrap(target: T, *, engine: str | None = None, decoder: str | None = None) -> T:
    """The same model, or class, with every EAGLE-3 hook it lacked.

    The hooks are added to the class (engines look them up there, by the class's own name), so other instances of the
    class have them too. Wrapping twice changes nothing more. A failure leaves everything as it was.

    Args:
        target: a model or a model class.
        engine: as for `plan_for`.
        decoder: as for `plan_for`.

    Raises:
        AdaptationError: EA2xx or EA403 with the reasons of the refusal, EA401, EA402 as `apply_plan`.
        ContractError: EA306, there is no such engine.
    """
    with LOCK:
        if target in _adaptations:
            return target
        found = backend(engine or engine_of(target))
        plan = found.plan(target, decoder=decoder)
        if isinstance(plan, Refusal):
            raise AdaptationError(plan.reasons)
        adaptation = apply_plan(plan)
        try:
            found.attach(target, plan)
        except BaseException:
            revert(adaptation)
            raise
        _adaptations[target] = adaptation
        return target


def unwrap(target: T) -> T:
    """The same model, or class, without what `wrap` gave it; its class is as before once no other wrapping needs it.

    Raises:
        AdaptationError: EA404, it was not wrapped.
    """
    with LOCK:
        adaptation = _adaptations.pop(target, None)
        if adaptation is None:
            name = class_name(target if isinstance(target, type) else type(target))
            raise AdaptationError(
                Diagnostic(
                    "EA404", f"{name} was not wrapped", next_step="unwrap the very object that was given to wrap"
                )
            )
        backend(adaptation.plan.engine).detach(target, adaptation.plan)
        revert(adaptation)
        return target


def explain(target: Any, *, engine: str | None = None, decoder: str | None = None) -> Explanation:
    """What was done to a wrapped target and why, or what `wrap` would do.

    Raises:
        ContractError: EA306, there is no such engine.
    """
    cls = target if isinstance(target, type) else type(target)
    engine = engine or engine_of(target)
    done = _adaptations.get(target) or next((a for a in adaptations_of(cls) if a.plan.engine == engine), None)
    if done is not None:
        return Explanation(class_name(cls), "adapted", done.plan)
    plan = plan_for(target, engine=engine, decoder=decoder)
    if isinstance(plan, Refusal):
        return Explanation(class_name(cls), "refused", plan)
    return Explanation(class_name(cls), "adaptable" if plan.edits else "complete", plan)
