"""The only code that knows where `registry.yaml` and `adapters/` lie: in the wheel, or in the checkout."""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import DataError

ENV = "EAGLE_ADAPTERS_DATA"
"""Environment variable that names another data folder (one that holds `registry.yaml` and `adapters/`)."""


def data_root() -> Path:
    """The folder that holds `registry.yaml` and `adapters/`.

    Looked for in the folder named by `EAGLE_ADAPTERS_DATA`, then inside the installed package, then in the checkout.

    Raises:
        DataError: EA101, none of them holds a `registry.yaml`.
    """
    named = os.environ.get(ENV)
    if named is not None:
        return _require(Path(named), f"the folder named by {ENV}")
    return _installed_root()


@cache
def _installed_root() -> Path:
    package = Path(__file__).resolve().parent
    if (package / "_data" / "registry.yaml").is_file():
        return package / "_data"
    checkout = package.parent
    project = checkout / "pyproject.toml"
    if (
        project.is_file()
        and tomllib.loads(project.read_text("utf-8")).get("project", {}).get("name") == "eagle-adapters"
    ):
        return _require(checkout, "the checkout")
    return _require(package / "_data", "the installed package")


def _require(folder: Path, what: str) -> Path:
    if not (folder / "registry.yaml").is_file():
        raise DataError(
            Diagnostic(
                "EA101",
                f"{what} holds no registry.yaml",
                expected=str(folder / "registry.yaml"),
                found="no such file",
                next_step=f"reinstall eagle-adapters, or set {ENV} to a folder with registry.yaml and adapters/",
            )
        )
    return folder
