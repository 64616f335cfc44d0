"""What is said of a class that was adapted by its source alone: nobody has verified it in this engine version."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from packaging.specifiers import SpecifierSet

from eagle_adapters import registry
from eagle_adapters.contract import Engine
from eagle_adapters.errors import DataError, UsageError
from eagle_adapters.introspect.anatomy import class_name

CODE = "EA406"


def unverified(
    cls: type, engine: Engine | str, version: str, *, architectures: Iterable[str] = (), checkpoint: str | None = None
) -> str | None:
    """One line for the log about an adapted class, or None when its states were verified in this engine version.

    Args:
        cls: the engine's class that was adapted.
        engine: whose class it is.
        version: the engine's installed version.
        architectures: what the checkpoint calls the class (`architectures` in config.json), beside its own name.
        checkpoint: the target as the engine was given it: a folder, or a name on the hub.
    """
    families = {family for name in (cls.__name__, *architectures) if (family := _family(name)) is not None}
    if any(_verified(family, Engine(engine), version) for family in families):
        return None
    return (
        f"{CODE}: {class_name(cls)} is adapted by what its source says; its boundaries are not verified in "
        f"{Engine(engine).value} {version}. Verify them: {command(engine, min(families, default=None), checkpoint)}"
    )


def command(engine: Engine | str, family: str | None, checkpoint: str | None) -> str:
    """The shell command that verifies a target: small, by its family, where that is known; else the checkpoint."""
    if family is not None:
        target = family
    elif checkpoint is None:
        target = "FOLDER_OF_THE_CHECKPOINT"
    elif Path(checkpoint).is_dir():
        target = shlex.quote(checkpoint)
    else:
        target = f'"$(hf download --quiet {shlex.quote(checkpoint)})"'
    return f"eagle-adapters verify {target} --engine {Engine(engine).value}"


def _family(name: str) -> str | None:
    try:
        return registry.load().family_of(name)
    except (UsageError, DataError):
        return None


def _verified(family: str, engine: Engine, version: str) -> bool:
    row = registry.load().index.families[family].engines.get(engine)
    return (
        row is not None and row.status == "verified" and SpecifierSet(row.versions).contains(version, prereleases=True)
    )
