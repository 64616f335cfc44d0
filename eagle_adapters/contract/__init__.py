"""The EAGLE-3 target contract: protocols to type against, data to read, and `check` to compare a target with it."""

from eagle_adapters.contract.check import check
from eagle_adapters.contract.hooks import Call, Contract, Engine, Hook, Kind, contract_for, contracts
from eagle_adapters.contract.protocols import (
    CapturedStates,
    SglangEagle3Target,
    TransformersEagle3Target,
    VllmEagle3Target,
)

__all__ = [
    "Call",
    "CapturedStates",
    "Contract",
    "Engine",
    "Hook",
    "Kind",
    "SglangEagle3Target",
    "TransformersEagle3Target",
    "VllmEagle3Target",
    "check",
    "contract_for",
    "contracts",
]
