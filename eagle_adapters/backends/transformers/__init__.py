"""The `transformers` backend: captures boundaries 0..N of any decoder-style model through its real forward."""

from __future__ import annotations

from typing import Any

from eagle_adapters.backends.base import installed_version
from eagle_adapters.contract import Engine
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.introspect.anatomy import class_name, resolve
from eagle_adapters.plan import Plan, Refusal


class TransformersBackend:
    """Plans for live models and classes; see `eagle_adapters.backends.base.Backend`."""

    name = Engine.TRANSFORMERS.value

    def version(self) -> str | None:
        """The installed version of transformers, or None."""
        return installed_version("transformers")

    def plan(self, target: Any, *, decoder: str | None = None) -> Plan | Refusal:
        """The plan for a model or a model class."""
        from eagle_adapters.backends.transformers import planning

        version = self.version()
        if version is None:
            missing = Diagnostic(
                "EA306", "transformers is not installed", next_step="pip install 'eagle-adapters[transformers]'"
            )
            return Refusal(class_name(target if isinstance(target, type) else type(target)), self.name, (missing,))
        if isinstance(target, type):
            return planning.plan_class(target, version, decoder=decoder)
        return planning.plan_model(target, version, decoder=decoder)

    def attach(self, target: Any, plan: Plan) -> None:
        """Put the silent hooks on a live model, so that a later torch.compile sees them."""
        if plan.anatomy is not None:
            from eagle_adapters.backends.transformers import capture, planning

            decoder = resolve(target, plan.anatomy.decoder.path)
            capture.attach(decoder, resolve(target, planning.layers_path(plan.anatomy)))

    def detach(self, target: Any, plan: Plan) -> None:
        """Take the hooks off a live model."""
        if plan.anatomy is not None:
            from eagle_adapters.backends.transformers import capture

            capture.detach(resolve(target, plan.anatomy.decoder.path))


BACKEND = TransformersBackend()
