"""Real SGLang in one process for the whole suite: engines one after the other, each forked from it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for sglang_cases: test modules are imported by path

from sglang_cases import Case, make_case  # noqa: E402

from eagle_adapters.verify.sglang.session import Session  # noqa: E402


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """SGLang, with the stand-in for its kernels and the test-side plug-ins."""
    names = sorted(path.stem for path in (HERE / "plugins").glob("*.py"))
    plugins = {name: f"{name}:register" for name in names}
    with Session(path=[str(HERE / "standin"), str(HERE / "plugins")], plugins=plugins) as running:
        yield running


@pytest.fixture(scope="session")
def case_of(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """`case_of(name)`: the case of a config beside the tests, else of an adapter; each is made once."""
    made: dict[str, Case] = {}

    def make(name: str) -> Case:
        if name not in made:
            made[name] = make_case(name, session, tmp_path_factory.mktemp(name) / "target")
        return made[name]

    return make
