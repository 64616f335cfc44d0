"""Typed access to the fields of a config that anyone may have written; all faults are reported at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.drafts.spec import Rope
from eagle_adapters.errors import DataError

_LARGEST = 2**31
_LONGEST = 1024


class Fields:
    """The fields of one config, with a path for messages.

    Values of a wrong type count as absent and are remembered; `check` raises them together.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self.faults: list[Diagnostic] = []

    def count(self, *names: str, default: int | None = None) -> int | None:
        """The first stated of `names` as an integer of 1 to 2**31, else `default`."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST:
                return value
            self._fault(name, "an integer greater than 0", value)
        return default

    def need(self, *names: str, default: int | None = None) -> int:
        """As `count`, but one of them must be there. Gives 1 in its stead, for `check` to refuse."""
        found = self.count(*names, default=default)
        if found is None:
            if not any(self.values.get(name) is not None for name in names):
                self._fault(names[0], "an integer greater than 0", None)
            return 1
        return found

    def number(self, name: str, default: float | None = None) -> float | None:
        """A finite number, else `default`."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value):
            return float(value)
        self._fault(name, "a finite number", value)
        return default

    def flag(self, name: str) -> bool | None:
        """A boolean, or None when it is not stated."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return value
        self._fault(name, "true or false", value)
        return None

    def text(self, name: str) -> str | None:
        """A string, or None."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        self._fault(name, "a string", value)
        return None

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, `()` when it is not stated."""
        value = self.values.get(name)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self._fault(name, "a list of strings", value)
        return ()

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers; None when it is not stated or empty, as the engines take it."""
        value = self.values.get(name)
        if value is None or value == []:
            return None
        if isinstance(value, list) and len(value) < _LONGEST and all(_is_integer(n) for n in value):
            return tuple(value)
        self._fault(name, "a list of layer ids", value)
        return None

    def nested(self, name: str) -> Mapping[str, Any]:
        """An object, `{}` when it is not stated."""
        value = self.values.get(name)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self._fault(name, "an object", value)
        return {}

    def inside(self, name: str) -> Fields:
        """The fields of a nested object; its faults are collected here."""
        out = Fields(self.nested(name), f"{self.where}: {name}")
        out.faults = self.faults
        return out

    def check(self) -> None:
        """Refuse when anything had a wrong type.

        Raises:
            DataError: EA703, with every fault.
        """
        if self.faults:
            raise DataError(dict.fromkeys(self.faults))

    def _fault(self, name: str, expected: str, value: Any) -> None:
        found = "nothing" if value is None else repr(value)[:80]
        message = f"the field {name} is missing" if value is None else f"the field {name} has an impossible value"
        self.faults.append(Diagnostic("EA703", message, expected=expected, found=found, where=f"{self.where}: {name}"))


def read_rope(fields: Fields) -> Rope:
    """Rotary positions, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling`."""
    parameters = fields.nested("rope_parameters")
    full = parameters.get("full_attention")
    inner = Fields(full if isinstance(full, dict) else parameters, f"{fields.where}: rope_parameters")
    scaling = Fields(fields.nested("rope_scaling"), f"{fields.where}: rope_scaling")
    inner.faults = scaling.faults = fields.faults
    theta = inner.number("rope_theta")
    if theta is None:
        theta = scaling.number("rope_theta", fields.number("rope_theta"))
    values = {**scaling.values, **inner.values}
    kind = values.get("rope_type", values.get("type", "default"))
    rest = {
        key: value
        for key, value in values.items()
        if key not in ("rope_theta", "type", "rope_type", "mrope_section", "mrope_interleaved") and value is not None
    }
    return Rope(
        theta=theta,
        scaling={} if kind in ("default", "mrope", None) else {"rope_type": kind, **rest},
        mrope_section=inner.integers("mrope_section") or scaling.integers("mrope_section"),
        max_position=fields.count("max_position_embeddings", "n_positions", "seq_length"),
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
