"""Whether the data files agree: with each other, with the folders they name, and with the evidence they rest on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eagle_adapters.contract import Engine
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.registry.document import Document
from eagle_adapters.registry.schema import Adapter, Family, Index, Verified


def check_adapter(document: Document, adapter: Adapter, folder: Path) -> Iterator[Diagnostic]:
    """An adapter's agreement with its folder."""
    if adapter.family != folder.name:
        yield Diagnostic(
            "EA116",
            f"the adapter's family is not its folder {folder.name}",
            expected=folder.name,
            found=adapter.family,
            where=document.where(("family",)),
        )
    tiny = folder / "tiny.json"
    try:
        config = json.loads(tiny.read_text("utf-8"))
    except (OSError, ValueError) as error:
        yield Diagnostic("EA111", f"{tiny.name} of {folder.name} cannot be read", found=str(error), where=str(tiny))
        return
    names = config.get("architectures") if isinstance(config, dict) else None
    facts = adapter.engines.get(Engine.TRANSFORMERS)
    if facts is not None and names != [facts.architecture]:
        yield Diagnostic(
            "EA116",
            f"{tiny.name} of {folder.name} is of another architecture than the adapter's transformers entry",
            expected=str([facts.architecture]),
            found=str(names),
            where=str(tiny),
        )


def check_index(document: Document, index: Index, adapters: Mapping[str, Adapter], root: Path) -> Iterator[Diagnostic]:
    """The index's agreement with itself, with the adapters and with the evidence."""
    owners: dict[str, str] = {}
    for name, family in index.families.items():
        at = ("families", name)
        for position, architecture in enumerate(family.architectures):
            other = owners.setdefault(architecture, name)
            if other != name or architecture in family.architectures[:position]:
                where = document.where((*at, "architectures", position))
                yield Diagnostic("EA116", f"{architecture} is listed twice", found=f"also in {other}", where=where)
        if not (root / "adapters" / name).is_dir():
            expected = f"adapters/{name}/adapter.yaml"
            yield Diagnostic(
                "EA116", f"{name} has no adapter", expected=expected, found="no such folder", where=document.where(at)
            )
        for engine, row in family.engines.items():
            if isinstance(row, Verified):
                yield from _check_evidence(document, (*at, "engines", engine, "evidence"), name, engine, row, root)
        if name in adapters:
            yield from _check_family(document, name, family, adapters[name])
    for name in sorted(set(adapters) - set(index.families)):
        where = document.where(("families",))
        yield Diagnostic("EA116", f"the adapter {name} is not in the index", expected=f"families.{name}", where=where)
    for draft, known in index.drafts.items():
        if known.family is not None and known.family not in index.families:
            where = document.where(("drafts", draft, "family"))
            yield Diagnostic("EA116", f"the family of {draft} does not exist", found=known.family, where=where)


def _check_family(document: Document, name: str, family: Family, adapter: Adapter) -> Iterator[Diagnostic]:
    for engine, facts in adapter.engines.items():
        if facts.architecture not in family.architectures:
            yield Diagnostic(
                "EA116",
                f"the {engine} architecture of the adapter {name} is not listed in the index",
                expected=facts.architecture,
                found=", ".join(family.architectures),
                where=document.where(("families", name, "architectures")),
            )
        if engine not in family.engines:
            where = document.where(("families", name, "engines"))
            yield Diagnostic("EA116", f"{name} has no status for {engine}", expected="status: unproven", where=where)
    for engine, row in family.engines.items():
        if row.status != "refused" and engine not in adapter.engines:
            where = document.where(("families", name, "engines", engine))
            yield Diagnostic("EA116", f"the adapter {name} says nothing about {engine}", found=row.status, where=where)


def _check_evidence(
    document: Document, at: tuple[str, ...], family: str, engine: str, row: Verified, root: Path
) -> Iterator[Diagnostic]:
    """Whether the evidence file is there, passed, and is about this family, engine, release and tiny config."""
    where = document.where(at)
    again = f"eagle-adapters verify {family} --engine {engine} --evidence {row.evidence}"
    try:
        evidence = dict(json.loads((root / row.evidence).read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        message = f"{family} is called verified in {engine}, but its evidence cannot be read"
        yield Diagnostic("EA115", message, found=str(error), where=where, next_step=again)
        return
    wanted = {
        "family": family,
        "engine": engine,
        "engine_version": row.versions.removeprefix("=="),
        "verdict": "pass",
        "config_sha256": _tiny_digest(root / "adapters" / family),
    }
    # A build tag such as +cpu names the same release.
    evidence["engine_version"] = str(evidence.get("engine_version")).partition("+")[0]
    for field, value in wanted.items():
        if evidence.get(field) != value:
            message = f"the evidence of {family} in {engine} does not agree: {field}"
            found = str(evidence.get(field))
            yield Diagnostic("EA115", message, expected=value, found=found, where=where, next_step=again)


def config_digest(fields: Mapping[str, Any]) -> str:
    """The hash of a config's fields, independent of how its file is laid out."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _tiny_digest(folder: Path) -> str | None:
    """The hash of a family's tiny.json; None when it cannot be read, which is a finding of its own."""
    try:
        return config_digest(json.loads((folder / "tiny.json").read_text("utf-8")))
    except (OSError, ValueError):
        return None
