"""The generated pages in `docs/` are what `make pages` would write now."""

from __future__ import annotations

import runpy
import tomllib

import pytest

from eagle_adapters.diagnostics import CODES
from eagle_adapters.resources import data_root

PAGES = runpy.run_path(str(data_root() / ".ci" / "pages.py"))["pages"]()


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: path.name)
def test_a_generated_page_is_up_to_date(path):
    assert path.read_text("utf-8") == PAGES[path], "run: make pages"


def test_every_page_is_in_the_navigation():
    root = data_root()
    site = tomllib.loads((root / "zensical.toml").read_text("utf-8"))["project"]
    listed = [page for entry in site["nav"] for page in entry.values()]

    assert sorted(listed) == sorted(path.name for path in (root / "docs").glob("*.md"))


def test_every_code_is_on_the_page():
    (page,) = (text for path, text in PAGES.items() if path.name == "errors.md")

    assert all(f"| `{code}` | {title} |" in page for code, title in CODES.items())
    assert list(CODES) == sorted(CODES)
