"""What a TARGET on the command line means: a model folder, a config.json, an architecture or family, `module:Class`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from eagle_adapters.contract import Engine
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import DataError, UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """A TARGET, read.

    Attributes:
        text: as it was given.
        fields: the fields of its config; None for a bare class or architecture.
        architecture: the class name its config asks for.
        class_name: `module:Class`, when given so.
        family: the registry's family, when it is known there.
        folder: the model folder, when it is one.
    """

    text: str
    fields: Mapping[str, Any] | None = None
    architecture: str | None = None
    class_name: str | None = None
    family: str | None = None
    folder: Path | None = None

    @property
    def engine(self) -> Engine:
        """The engine whose class it names, else `transformers`."""
        package = (self.class_name or "").partition(".")[0]
        return Engine(package) if package in set(Engine) else Engine.TRANSFORMERS

    def class_in(self, engine: Engine) -> str:
        """The `module:Class` that an engine serves it with, read from the registry or from the engine's source.

        Raises:
            UsageError: EA206, the engine has no class for it.
        """
        from eagle_adapters.introspect import engine_class
        from eagle_adapters.registry import load

        if self.class_name is not None:
            return self.class_name
        facts = load().adapters[self.family].engines.get(engine) if self.family is not None else None
        if facts is not None and self.folder is None:
            return f"{facts.module}:{facts.architecture}"
        found = engine_class(engine, self.architecture) if self.architecture is not None else None
        if found is not None:
            return found
        raise UsageError(
            Diagnostic(
                "EA206",
                f"{engine} has no class for {self.architecture or self.text}",
                expected=f"an architecture that the installed {engine} serves",
                found=str(self.architecture),
                next_step="name the class as module:Class",
            )
        )


def resolve_target(text: str) -> Target:
    """Read a TARGET; no weights are loaded and no code of the target is run.

    Raises:
        DataError: EA106, a folder or file holds no config.
        UsageError: EA117, no such file, and no family or architecture of that name.
    """
    path = Path(text)
    if path.is_dir():
        return _from_config(text, path / "config.json", path)
    if path.suffix == ".json":
        return _from_config(text, path, None)
    if ":" in text:
        return Target(text, class_name=text)
    return _by_name(text)


def _from_config(text: str, path: Path, folder: Path | None) -> Target:
    try:
        fields = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        _no_config(path, "no such file")
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        _no_config(path, str(error))
    if not isinstance(fields, dict):
        _no_config(path, f"a {type(fields).__name__} instead of an object")
    architectures = fields.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    return Target(text, fields, architecture, family=_family(architecture), folder=folder)


def _by_name(name: str) -> Target:
    from eagle_adapters.registry import load
    from eagle_adapters.tiny import tiny_config

    registry = load()
    if _family(name) is None and not name.isidentifier():
        registry.family_of(name)  # raises, with names that look alike
    family = _family(name)
    if family is None:
        return Target(name, architecture=name)
    fields = tiny_config(family)
    known = registry.index.families[family].architectures
    return Target(name, fields, name if name in known else known[0], family=family)


def _family(name: object) -> str | None:
    from eagle_adapters.registry import load

    try:
        return load().family_of(name) if isinstance(name, str) else None
    except UsageError:
        return None


def _no_config(path: Path, found: str) -> NoReturn:
    raise DataError(
        Diagnostic("EA106", f"{path} is no model config", expected="a config.json of a checkpoint", found=found)
    )
