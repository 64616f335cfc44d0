"""The sdist, the wheel built from it, and that wheel in an environment of its own, away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pydantic
import pytest

from eagle_adapters.resources import data_root

ROOT = data_root()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
SUFFIXES = {".yaml", ".json", ".patch", ".md"}


def run(*command, cwd, **environment):
    """Run a command without what this test run set for its own imports."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "EAGLE_ADAPTERS_DATA", "COVERAGE_PROCESS_START")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """`python -m build` makes the sdist from the checkout and the wheel from the sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    assert len(list(out.glob("*.tar.gz"))) == 1
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The commands of a fresh environment that holds the wheel, and sees our dependencies but not the checkout."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False)
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    run(
        *(sys.executable, "-m", "pip", "--python", home / "bin" / "python"),
        *("install", "--quiet", "--no-index", "--no-deps", wheel),
        cwd=home,
    )
    dependencies = Path(pydantic.__file__).parent.parent
    (site / "dependencies.pth").write_text(f"{dependencies}\n", "utf-8")
    return home / "bin"


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert {name.split("/")[0] for name in names} == {"eagle_adapters", f"eagle_adapters-{VERSION}.dist-info"}
    assert "eagle_adapters/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]
    for module in ROOT.glob("eagle_adapters/**/*.py"):
        assert module.relative_to(ROOT).as_posix() in names


def test_the_wheel_holds_every_data_file_as_it_is(wheel):
    data = [ROOT / "registry.yaml", *(p for p in ROOT.glob("adapters/**/*") if p.is_file() and p.suffix in SUFFIXES)]
    expected = {f"eagle_adapters/_data/{path.relative_to(ROOT).as_posix()}": path.read_bytes() for path in data}
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if name.startswith("eagle_adapters/_data/")}

    assert found == expected
    assert len(found) > 10


def test_the_installed_command_finds_its_data(installed, tmp_path):
    report = json.loads(run(installed / "eagle-adapters", "registry", "validate", "--format", "json", cwd=tmp_path))

    assert report["valid"]
    assert Path(report["root"]).parts[-3:] == ("site-packages", "eagle_adapters", "_data")
    assert Path(report["root"]).is_relative_to(installed.parent)


def test_the_installed_command_lists_what_the_checkout_lists(installed, tmp_path):
    listed = json.loads(run(installed / "eagle-adapters", "list", "--format", "json", cwd=tmp_path))
    here = json.loads(run(sys.executable, "-m", "eagle_adapters", "list", "--format", "json", cwd=ROOT))

    assert listed == here


def test_the_version_is_the_project_s(installed, tmp_path):
    assert run(installed / "eagle-adapters", "--version", cwd=tmp_path) == f"eagle-adapters {VERSION}\n"
