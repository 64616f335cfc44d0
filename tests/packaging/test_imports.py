"""What an import costs is which modules it pulls in: the heavy ones stay out until a command needs them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "vllm", "sglang", "libcst", "rich", "numpy", "matplotlib", "safetensors")

PUBLIC = (
    "eagle_adapters",
    "eagle_adapters.boundaries",
    "eagle_adapters.contract",
    "eagle_adapters.registry",
    "eagle_adapters.drafts",
    "eagle_adapters.cli",
)


def loaded_after(statement):
    """The top-level modules that a fresh interpreter holds after a statement."""
    script = (
        f"import sys, json; {statement}; json.dump(sorted({{m.partition('.')[0] for m in sys.modules}}), sys.stdout)"
    )
    return set(
        json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    )


def test_the_package_itself_imports_nothing_but_the_standard_library():
    loaded = loaded_after("import eagle_adapters") - loaded_after("pass")

    assert not loaded & {*HEAVY, "pydantic", "yaml", "typer", "packaging"}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_modules_leave_the_heavy_ones_out(module):
    assert not loaded_after(f"import {module}") & set(HEAVY)


@pytest.mark.parametrize("module", ["eagle_adapters", "eagle_adapters.contract", "eagle_adapters.registry"])
def test_every_promised_name_is_there_and_documented(module):
    promised = importlib.import_module(module)

    assert promised.__all__
    assert len(set(promised.__all__)) == len(promised.__all__)
    for name in promised.__all__:
        value = getattr(promised, name)
        if callable(value):
            assert (value.__doc__ or "").strip(), f"{module}.{name} has no docstring"


def test_help_leaves_the_heavy_ones_out():
    """Every command module is imported for `--help`; none may import at its top what its command needs."""
    loaded = loaded_after(
        "import contextlib, io; from eagle_adapters.cli import main; "
        "contextlib.redirect_stdout(io.StringIO()).__enter__(); main(['--help']); "
        "sys.stdout = sys.__stdout__"
    )

    assert "typer" in loaded
    assert not loaded & set(HEAVY)
