"""The contract as data: for each engine and version range, every hook with its signature, caller and return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import ContractError


class Engine(StrEnum):
    """The engines that have a contract."""

    TRANSFORMERS = "transformers"
    VLLM = "vllm"
    SGLANG = "sglang"


class Kind(StrEnum):
    """What a hook is: a method that is called, an attribute or config field that is read, or a name no longer used."""

    METHOD = "method"
    ATTRIBUTE = "attribute"
    CONFIG = "config"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Call:
    """One way in which the engine calls a hook: how many positional arguments, and which keywords."""

    positional: int = 0
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hook:
    """One piece of the contract.

    Attributes:
        name: the name on the target class (for `config`: the field of `target.config`).
        kind: how it is used.
        signature: the signature as the engine documents it, or the type of an attribute.
        called_by: who reads or calls it: `package version, file`.
        when: at which moment.
        returns: what it must return, or what the value means.
        calls: every way it is called; a method must accept all of them.
        required: whether serving fails without it.
        instead: for a dead name, the name the engine calls now.
    """

    name: str
    kind: Kind
    signature: str
    called_by: str
    when: str
    returns: str
    calls: tuple[Call, ...] = ()
    required: bool = True
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """What one engine, in a range of versions, asks of an EAGLE-3 target."""

    engine: Engine
    versions: SpecifierSet
    hooks: tuple[Hook, ...]

    def __iter__(self) -> Iterator[Hook]:
        return iter(self.hooks)


def contracts() -> tuple[Contract, ...]:
    """Every contract, of all engines and version ranges."""
    from eagle_adapters.contract import sglang, transformers, vllm

    return (*transformers.CONTRACTS, *vllm.CONTRACTS, *sglang.CONTRACTS)


def contract_for(engine: str, version: str | None = None) -> Contract:
    """The contract of `engine` at `version`; without a version, the newest that is known.

    Raises:
        ContractError: EA306, no such engine, or no contract for that version.
    """
    known = [contract for contract in contracts() if contract.engine == engine]
    if not known:
        raise ContractError(
            Diagnostic(
                "EA306", f"there is no contract for the engine {engine!r}", expected=", ".join(Engine), found=engine
            )
        )
    if version is None:
        return known[-1]
    for contract in known:
        if contract.versions.contains(Version(version), prereleases=True):
            return contract
    raise ContractError(
        Diagnostic(
            "EA306",
            f"there is no contract for {engine} {version}",
            expected="; ".join(str(contract.versions) for contract in known),
            found=version,
            next_step=f"install a {engine} in that range, or report what this version changed",
        )
    )
