"""The entry point `vllm.general_plugins`: adapt the target's classes when an engine is asked for EAGLE-3, only then.

vLLM calls `register` in every process it starts (vllm 0.32.0, plugins/__init__.py) and lets its errors through. It only
leaves word with three modules: where the configuration is made (ids are settled, wrong ones are refused before anything
starts), where a worker is made (it knows the configuration and has built nothing yet), and where the registry's class
for an architecture is looked up (inner models that the checkpoint chooses).
"""

from __future__ import annotations

import functools
import logging
from types import ModuleType
from typing import Any

from eagle_adapters.backends.imports import after_import
from eagle_adapters.plugins import switched_off

logger = logging.getLogger("eagle_adapters.vllm")

_asked_by: Any = None
"""The configuration of the worker in this process that asks for EAGLE-3 states, or None."""

_plans: dict[type, Any] = {}
"""The classes that were adapted in this process, with their plans."""

_said: set[type] = set()
"""The adapted classes that the present worker has been told about."""


def register() -> None:
    """Leave word with vLLM's modules; does nothing when it is switched off."""
    if switched_off():
        return
    after_import("vllm.engine.arg_utils", _watch_configuration)
    after_import("vllm.v1.worker.worker_base", _watch_workers)
    after_import("vllm.model_executor.model_loader.utils", _watch_classes)


def _watch_configuration(module: ModuleType) -> None:
    make = module.EngineArgs.create_engine_config

    @functools.wraps(make)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = make(self, *args, **kwargs)
        if config.speculative_config is not None:
            from eagle_adapters.backends.vllm.request import settle

            _show_log()
            settle(config)
        return config

    module.EngineArgs.create_engine_config = create_engine_config


def _watch_workers(module: ModuleType) -> None:
    start = module.WorkerBase.__init__

    @functools.wraps(start)
    def start_asked(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        _ask(vllm_config)
        start(self, vllm_config, *args, **kwargs)

    module.WorkerBase.__init__ = start_asked


def _watch_classes(module: ModuleType) -> None:
    look_up = module.get_model_architecture

    @functools.wraps(look_up)
    def get_model_architecture(model_config: Any) -> Any:
        found = look_up(model_config)
        if _asked_by is not None and model_config.runner_type != "draft":
            _adapt(found[0], model_config)
        return found

    vars(module)["get_model_architecture"] = get_model_architecture


def _ask(config: Any) -> None:
    """Note whether this process serves EAGLE-3; if so, settle the ids."""
    global _asked_by  # noqa: PLW0603 - one worker a process, told apart by nothing else
    _asked_by = None
    _said.clear()
    if config.speculative_config is None:
        return
    from eagle_adapters.backends.vllm.request import settle, wants_states

    settle(config)
    if wants_states(config):
        _show_log()
        _asked_by = config


def _adapt(cls: type, model_config: Any) -> None:
    """Give a class its hooks, or stop the engine with the reasons."""
    from eagle_adapters.backends.vllm.modes import check_class, mark_generated
    from eagle_adapters.backends.vllm.request import settled
    from eagle_adapters.errors import AdaptationError
    from eagle_adapters.introspect.anatomy import class_name
    from eagle_adapters.plan import Refusal
    from eagle_adapters.wrapping import plan_for, wrap

    done = _plans.get(cls)
    plan = done or plan_for(cls, engine="vllm")
    if isinstance(plan, Refusal):
        raise AdaptationError(plan.reasons)
    check_class(_asked_by, cls, plan, settled(_asked_by))
    if plan.edits:
        mark_generated(_asked_by, plan)
    if done is None:
        wrap(cls, engine="vllm")
        _plans[cls] = plan
        hooks = ", ".join(f"{edit.owner.split(':')[-1]}.{edit.name}" for edit in plan.edits)
        logger.info("EAGLE-3 hooks given to %s: %s", class_name(cls), hooks or "none, it has them all")
    _warn_unverified(cls, plan, model_config)


def _warn_unverified(cls: type, plan: Any, model_config: Any) -> None:
    """Say once an engine that no one has verified the boundaries of an adapted class."""
    from eagle_adapters.backends.unverified import unverified

    if not plan.edits or cls in _said or _asked_by.parallel_config.rank > 0:
        return
    # a class that is part of this one needs no word of its own
    _said.update({cls, *plan.anatomy.owners.values()})
    version, names = plan.engine_version, model_config.architectures
    line = unverified(cls, plan.engine, version, architectures=names, checkpoint=str(model_config.model))
    if line is not None:
        logger.warning("%s", line)


def _show_log() -> None:
    """Let the library's few lines appear among vLLM's own."""
    handlers = logging.getLogger("vllm").handlers
    if handlers and not logger.handlers:
        for handler in handlers:
            logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
