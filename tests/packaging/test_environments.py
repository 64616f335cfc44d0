"""`.ci/env.py`: a lock's packages are installed once, whole or not at all, and shared by every checkout."""

from __future__ import annotations

import importlib.util

import pytest

from eagle_adapters.resources import data_root


@pytest.fixture
def env(monkeypatch, tmp_path):
    """The module, working on an empty lock and a cache of its own; it counts how often pip ran."""
    spec = importlib.util.spec_from_file_location("project_env", data_root() / ".ci" / "env.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path / "checkout")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "checkout" / ".ci" / "locks").mkdir(parents=True)
    (tmp_path / "checkout" / ".ci" / "locks" / "core.txt").write_text("# nothing\n")
    module.installs = []
    monkeypatch.setattr(module, "pip", lambda home, *arguments: module.installs.append((home, arguments)))
    monkeypatch.setattr(module.venv, "create", lambda home, with_pip: home.mkdir())
    return module


def test_packages_are_installed_once_for_a_lock(env):
    first = env.shared_packages("core")

    assert env.shared_packages("core") == first
    assert len(env.installs) == 1
    home, arguments = env.installs[0]
    assert home == first
    assert arguments[0] == "install"
    assert arguments[-1].endswith(".ci/locks/core.txt")


def test_a_changed_lock_gets_a_folder_of_its_own(env):
    first = env.shared_packages("core")
    (env.ROOT / ".ci" / "locks" / "core.txt").write_text("something==1\n")

    assert env.shared_packages("core") != first
    assert len(env.installs) == 2


def test_an_interrupted_install_is_never_used(env, monkeypatch):
    def interrupted(home, *arguments):
        (home / "half").touch()
        raise KeyboardInterrupt

    whole = env.pip
    monkeypatch.setattr(env, "pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        env.shared_packages("core")
    monkeypatch.setattr(env, "pip", whole)

    home = env.shared_packages("core")

    assert len(env.installs) == 1
    assert [path.name for path in home.iterdir()] == [env.MARK]
