"""Build hook: ships `registry.yaml` and `adapters/` inside the wheel, file by file.

A plain directory include would also ship files that git ignores; hence the suffix allow-list.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SUFFIXES = {".yaml", ".json", ".patch", ".md"}


class DataHook(BuildHookInterface):  # type: ignore[type-arg]
    """Place the data files under `eagle_adapters/_data` of a (non-editable) wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add each data file to the wheel; editable installs read the checkout instead."""
        if version == "editable":
            return
        root = Path(self.root)
        files = [root / "registry.yaml"]
        files += sorted(p for p in (root / "adapters").rglob("*") if p.is_file() and p.suffix in SUFFIXES)
        for path in files:
            build_data["force_include"][str(path)] = f"eagle_adapters/_data/{path.relative_to(root).as_posix()}"
