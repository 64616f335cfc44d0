"""`eagle-adapters inspect TARGET`: what a target is made of, and whether it can speak EAGLE-3 in an engine."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle_adapters.cli.render import Block, ExitCode, Format, FormatOption, Table, emit
from eagle_adapters.cli.target import Target, resolve_target
from eagle_adapters.contract import Engine
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import EagleAdaptersError, UsageError

if TYPE_CHECKING:
    from eagle_adapters.introspect import Anatomy, Fact
    from eagle_adapters.plan import Plan, Refusal

_WRONG = frozenset({"EA302", "EA303", "EA304", "EA307"})
"""Findings about a hook that is there and does not do what the engine expects."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("inspect")(inspect)


def inspect(
    target: Annotated[str, typer.Argument(help="A model folder, a config.json, an architecture, or module:Class.")],
    engine: Annotated[
        Engine | None, typer.Option(help="The engine; by default that of the class, else transformers.")
    ] = None,
    decoder: Annotated[str | None, typer.Option(help="Path of the text decoder, when it must be chosen.")] = None,
    output: FormatOption = Format.TABLE,
) -> ExitCode:
    """Inspect a target: its chain to the decoder, its parts, and what EAGLE-3 lacks. Loads no weights."""
    from eagle_adapters.backends.base import backend

    read = resolve_target(target)
    engine = engine or read.engine
    version = backend(engine).version()
    if version is None:
        raise UsageError(
            Diagnostic(
                "EA205",
                f"{engine} is not installed here",
                expected=f"{engine} in the environment of this command",
                next_step=f"pip install 'eagle-adapters[{engine}]', or name another --engine",
            )
        )
    look = _look_live if engine is Engine.TRANSFORMERS else _look_at_source
    seen = look(read, engine, decoder)
    status = _status(seen)
    data = {"target": target, "engine": str(engine), "engine_version": version, "status": status, **_facts(seen, read)}
    emit(data, output, *_blocks(data, seen))
    return ExitCode.FINE if status in ("native", "adaptable") else ExitCode.FINDINGS


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was found: the anatomy (None when there is none), and the plan or the refusal."""

    anatomy: Anatomy | None
    plan: Plan | None
    refusal: Refusal | None


def _look_live(target: Target, engine: Engine, decoder: str | None) -> _Seen:
    """Build the model without weights, on the meta device, from its config alone."""
    from eagle_adapters.introspect import inspect_model

    model = _meta_model(target)
    try:
        anatomy = inspect_model(model, decoder=decoder)
    except EagleAdaptersError as error:
        return _refused(target.text, engine, error)
    return _planned(anatomy, model, engine, decoder)


def _meta_model(target: Target) -> Any:
    import torch
    import transformers

    from eagle_adapters.tiny import build_model

    if target.fields is not None:
        return build_model(target.fields, device="meta")
    module, _, name = (target.class_name or f"transformers:{target.architecture}").partition(":")
    try:
        cls = getattr(importlib.import_module(module), name)
        config = cls.config_class()
    except (ImportError, AttributeError, TypeError) as error:
        raise UsageError(
            Diagnostic(
                "EA206",
                f"{target.text} is no model class of transformers {transformers.__version__}",
                expected="a class with a config, a folder, or a config.json",
                found=str(error),
                next_step="eagle-adapters list shows the known architectures",
            )
        ) from error
    with torch.device("meta"):
        return cls(config)


def _look_at_source(target: Target, engine: Engine, decoder: str | None) -> _Seen:
    """Read the engine's class from its source, then plan on the class itself."""
    from eagle_adapters.introspect import inspect_class

    name = target.class_in(engine)
    try:
        anatomy = inspect_class(name, decoder=decoder)
    except EagleAdaptersError as error:
        return _refused(name, engine, error)
    module, _, qualname = name.partition(":")
    try:
        cls = getattr(importlib.import_module(module), qualname)
    except Exception as error:  # an engine may fail to import in any way, e.g. without a GPU
        return _refused(
            name,
            engine,
            UsageError(
                Diagnostic("EA205", f"{module} cannot be imported here", found=f"{type(error).__name__}: {error}")
            ),
            anatomy,
        )
    return _planned(anatomy, cls, engine, decoder)


def _planned(anatomy: Anatomy, target: Any, engine: Engine, decoder: str | None) -> _Seen:
    from eagle_adapters.plan import Refusal
    from eagle_adapters.wrapping import plan_for

    plan = plan_for(target, engine=engine, decoder=decoder)
    return _Seen(anatomy, None, plan) if isinstance(plan, Refusal) else _Seen(anatomy, plan, None)


def _refused(name: str, engine: Engine, error: EagleAdaptersError, anatomy: Anatomy | None = None) -> _Seen:
    from eagle_adapters.plan import Refusal

    return _Seen(anatomy, None, Refusal(name, engine, tuple(error.diagnostics)))


def _status(seen: _Seen) -> str:
    if seen.plan is None:
        return "unsupported"
    if seen.plan.edits:
        return "adaptable"
    return "broken" if any(finding.code in _WRONG for finding in seen.plan.findings) else "native"


def _facts(seen: _Seen, target: Target) -> dict[str, Any]:
    anatomy = seen.anatomy

    def part(fact: Fact | None) -> dict[str, Any] | None:
        return None if fact is None else {"path": fact.path, "class": fact.class_name, "where": fact.where}

    decoder = None
    if anatomy is not None:
        decoder = {
            "path": anatomy.decoder.path,
            "layers": None if anatomy.layers is None else anatomy.layers.path,
            "num_layers": anatomy.num_layers.value if anatomy.num_layers else _layers_in(target.fields or {}),
        }
    return {
        "chain": [{"path": link.path, "class": link.class_name} for link in anatomy.chain] if anatomy else [],
        "decoder": decoder,
        "embedding": part(anatomy.embedding) if anatomy else None,
        "head": part(anatomy.head) if anatomy else None,
        "plan": seen.plan.as_dict() if seen.plan else None,
        "refusal": seen.refusal.as_dict() if seen.refusal else None,
    }


def _layers_in(fields: Any) -> int | None:
    """N as a config states it: source code does not."""
    for part in (fields, *(fields.get(name) for name in ("text_config", "llm_config", "language_config"))):
        value = part.get("num_hidden_layers") if isinstance(part, dict) else None
        if isinstance(value, int):
            return value
    return None


def _blocks(data: dict[str, Any], seen: _Seen) -> Sequence[Block]:
    head = f"{data['target']} in {data['engine']} {data['engine_version']}: {data['status']}"
    rows: list[tuple[str, str | None, str | None, str | None]] = []
    anatomy = seen.anatomy
    if anatomy is not None:
        for number, link in enumerate(anatomy.chain):
            what = "target" if number == 0 else "decoder" if link is anatomy.decoder else "wrapper"
            rows.append((what, link.path, link.class_name, link.where))
        for what in ("layers", "embedding", "head", "final_norm", "logits", "capture"):
            fact = getattr(anatomy, what)
            if fact is not None:
                rows.append((what.replace("_", " "), fact.path, fact.class_name, fact.where))
    blocks: list[Block] = [head, Table(("part", "path", "class", "where"), rows)] if rows else [head]
    if data["decoder"] and data["decoder"]["num_layers"]:
        blocks.append(f"{data['decoder']['num_layers']} layers")
    if seen.plan is not None and seen.plan.edits:
        edits = [(edit.kind, f"{edit.owner}.{edit.name}", edit.why) for edit in seen.plan.edits]
        blocks.append(Table(("edit", "of", "why"), edits, "plan"))
    return [*blocks, *(seen.refusal.reasons if seen.refusal else ())]
