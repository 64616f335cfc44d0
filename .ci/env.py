"""Makes one of the project's environments: `python3.11 .ci/env.py core|vllm|sglang|docs`.

The packages of `.ci/locks/NAME.txt` are installed once into a folder of the user's cache that is named after the lock,
so that every checkout with the same lock shares it. The checkout gets a thin environment of its own, `.venv` (or
`.venv-NAME`), which sees those packages and holds this project as an editable install, with its entry points.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "complete"
"""The file written last: a folder without it was interrupted, and is made anew."""


def main(name: str) -> None:
    """Make the environment, or find that it is there."""
    packages = shared_packages(name)
    thin_environment(ROOT / (".venv" if name == "core" else f".venv-{name}"), packages)


def shared_packages(name: str) -> Path:
    """The folder of the cache that holds the locked packages."""
    lock = ROOT / ".ci" / "locks" / f"{name}.txt"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eagle-adapters"
    interpreter = f"{sys.version} {os.path.realpath(sys.executable)}"
    home = cache / f"{name}-{digest(lock.read_text('utf-8'), interpreter)}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{home.name}.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (home / MARK).is_file():
            say(f"installing the {name} packages into {home}")
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, with_pip=True)
            # Without compiling: an engine brings tens of thousands of modules, of which a run imports few.
            pip(home, *("install", "--no-deps", "--no-compile", "--no-input", "--progress-bar", "off", "-r", str(lock)))
            (home / MARK).touch()
    return home


def thin_environment(folder: Path, packages: Path) -> None:
    """Lay an environment over the shared packages, with this checkout in it.

    What an engine's wheel needs to be importable on a machine without a GPU is in `tests/ENGINE/shim/sitecustomize.py`.
    """
    state = digest(str(packages), str(ROOT), (ROOT / "pyproject.toml").read_text("utf-8"), Path(__file__).read_text())
    mark = folder / MARK
    if mark.is_file() and mark.read_text() == state:
        return
    say(f"making {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=False)
    shared, own = site_packages(packages), site_packages(folder)
    # addsitedir, not a bare path: some engine packages come with .pth files of their own.
    shim = ROOT / "tests" / folder.name.removeprefix(".venv-") / "shim"
    lines = [f"import site; site.addsitedir({str(shared)!r})"]
    if shim.is_dir():
        lines.append(f"import sys; sys.path.insert(0, {str(shim)!r})")
    (own / "_shared_packages.pth").write_text("\n".join(lines) + "\n", "utf-8")
    pip(folder, "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--editable", str(ROOT))
    link_commands(folder, packages, shared)
    mark.write_text(state)


def link_commands(folder: Path, packages: Path, shared: Path) -> None:
    """Give the thin environment the commands of the shared packages, run by its own interpreter."""
    commands = folder / "bin"
    for distribution in distributions(path=[str(shared)]):
        for point in distribution.entry_points.select(group="console_scripts"):
            first = point.attr.partition(".")[0]
            # The guard is for commands whose processes spawn others: each of these imports the script again.
            lines = (
                f"#!{commands}/python",
                "import sys",
                f"from {point.module} import {first}",
                'if __name__ == "__main__":',
                f"    sys.exit({point.attr}())",
            )
            script = "\n".join(lines) + "\n"
            (commands / point.name).write_text(script, "utf-8")
            (commands / point.name).chmod(0o755)
    for program in (packages / "bin").iterdir():  # what is left is no Python script: ruff, for one
        target = commands / program.name
        if not target.exists() and program.read_bytes()[:2] != b"#!":
            target.symlink_to(program)


def site_packages(home: Path) -> Path:
    """Where an environment keeps its packages."""
    return home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def pip(home: Path, *arguments: str) -> None:
    """Run pip with an environment's interpreter."""
    subprocess.run(
        [home / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")},
    )


def digest(*texts: str) -> str:
    """A short hash of some texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def say(text: str) -> None:
    """Tell what takes time."""
    sys.stderr.write(f"env: {text}\n")


if __name__ == "__main__":
    main(sys.argv[1])
