"""The SGLang backend: plans that give a model class of SGLang the whole EAGLE-3 target interface."""

from __future__ import annotations

from typing import Any

from eagle_adapters.backends.base import installed_version
from eagle_adapters.plan import Plan, Refusal


class SGLangBackend:
    """See `eagle_adapters.backends.base.Backend`."""

    name = "sglang"

    def version(self) -> str | None:
        """The installed version of sglang, found without importing it."""
        return installed_version("sglang")

    def plan(self, target: Any, *, decoder: str | None = None) -> Plan | Refusal:
        """The edits that make a model class of SGLang, or a model whose graphs are not captured yet, speak EAGLE-3."""
        from eagle_adapters.backends.sglang.planning import plan_target

        return plan_target(target, self.version() or "0", decoder=decoder)

    def attach(self, target: Any, plan: Plan) -> None:
        """Nothing: everything is looked up on the class."""

    def detach(self, target: Any, plan: Plan) -> None:
        """Nothing."""


BACKEND = SGLangBackend()
