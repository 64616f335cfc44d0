"""Actions that wait for a module: run once, right after its import, and never import it themselves."""

from __future__ import annotations

import importlib
import sys

import pytest

from eagle_adapters.backends.imports import after_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "waited_for.py").write_text("import inspect\nVALUE = 1\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "waited_for"
    sys.modules.pop("waited_for", None)


def test_waits_for_the_import(module):
    seen = []
    after_import(module, lambda loaded: seen.append(loaded.VALUE))
    assert module not in sys.modules
    assert seen == []
    loaded = importlib.import_module(module)
    assert seen == [1]
    assert type(loaded.__spec__.loader).__name__ == "SourceFileLoader"


def test_a_module_that_is_there_is_served_at_once(module):
    importlib.import_module(module)
    seen = []
    after_import(module, lambda loaded: seen.append(loaded.VALUE))
    assert seen == [1]


def test_several_actions_run_in_order(module):
    seen = []
    after_import(module, lambda loaded: seen.append("first"))
    after_import(module, lambda loaded: seen.append("second"))
    importlib.import_module(module)
    assert seen == ["first", "second"]


def test_an_error_reaches_the_importer(module):
    def fail(loaded):
        raise RuntimeError("no")

    after_import(module, fail)
    with pytest.raises(RuntimeError, match="no"):
        importlib.import_module(module)
