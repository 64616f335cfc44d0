"""The entry point `sglang.srt.plugins`: adapt the target's class when a server is asked for EAGLE-3, and only then.

SGLang calls `register` in its main, scheduler, detokenizer and data-parallel processes and swallows its errors
(sglang 0.5.23, srt/plugins/__init__.py). It only leaves word here what to do once the model loader and the model
runner are imported, so that processes without a model stay as they were. A class that cannot be adapted gets a hook
that raises the reasons when the engine calls it.
"""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import Any

from eagle_adapters.backends.imports import after_import
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.plugins import switched_off

LOADER = "sglang.srt.model_loader.loader"
RUNNER = "sglang.srt.model_executor.model_runner"
IDS_READER = "resolve_spec_aux_hidden_state_config"

logger = logging.getLogger("eagle_adapters.sglang")


def register() -> None:
    """Leave word with the loader and the runner; does nothing when it is switched off."""
    if switched_off():
        return
    after_import(LOADER, _watch_loader)
    after_import(RUNNER, _watch_runner)


def _watch_loader(module: ModuleType) -> None:
    """Stand around the one function that makes a model of a class."""
    initialize = getattr(module, "_initialize_model", None)
    if initialize is None:
        logger.error("%s", _absent(f"{LOADER}._initialize_model"))
        return

    def initialize_adapted(model_config: Any, *args: Any, **kwargs: Any) -> Any:
        model = initialize(model_config, *args, **kwargs)
        if _wanted(model_config):
            from eagle_adapters.backends.sglang.serving import adapt_model, refuse

            runner = sys.modules.get(RUNNER)
            if runner is None or hasattr(runner, IDS_READER):
                adapt_model(model, model_config)
            else:
                refuse(type(model), (_absent(f"{RUNNER}.{IDS_READER}"),))
        return model

    module._initialize_model = initialize_adapted  # type: ignore[attr-defined]


def _watch_runner(module: ModuleType) -> None:
    """Stand around the function that reads the draft's layer ids, and swallows what it cannot read."""
    resolve = getattr(module, IDS_READER, None)
    if resolve is None:
        return  # said when a target is built for EAGLE-3

    def resolve_checked(**kwargs: Any) -> Any:
        config = resolve(**kwargs)
        if config.eagle_use_aux_hidden_state and kwargs["spec_algorithm"].is_eagle3():
            from eagle_adapters.backends.sglang.serving import remember_draft

            config.eagle_aux_hidden_state_layer_ids = remember_draft(config.draft_model_config)
        return config

    setattr(module, IDS_READER, resolve_checked)


def _absent(name: str) -> Diagnostic:
    return Diagnostic(
        "EA545",
        f"this SGLang has no {name}",
        expected="a release whose inner functions are known here (0.5.23)",
        consequence="the target cannot be adapted",
        next_step="use that release, or set EAGLE_ADAPTERS=off to serve as stock SGLang does",
    )


def _wanted(model_config: Any) -> bool:
    """Whether this model is the target of an EAGLE-3 draft."""
    from sglang.srt.runtime_context import get_spec

    return not model_config.is_draft_model and get_spec().speculative_algorithm == "EAGLE3"
