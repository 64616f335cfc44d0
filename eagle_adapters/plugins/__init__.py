"""Entry points that the engines call in each of their processes. Nothing here imports an engine's models."""

from __future__ import annotations

import os

SWITCH = "EAGLE_ADAPTERS"
"""Set to `off`, nothing of this package does anything in an engine."""


def switched_off() -> bool:
    """Whether the environment says that the plug-ins do nothing."""
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "false")
