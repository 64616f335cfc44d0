"""The trained pair, built once and cached, and its target, wrapped for one module at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eagle_adapters import unwrap, wrap
from eagle_adapters.speculation.drafter import Drafter, load_drafter
from eagle_adapters.testing.pair import Pair, load_pair


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("pair"):
            # The first of them trains the pair if it is not in the cache.
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def pair() -> Pair:
    return load_pair()


@pytest.fixture(scope="session")
def loaded(pair: Pair) -> Any:
    return pair.load_target()


@pytest.fixture(scope="module")
def target(loaded: Any) -> Iterator[Any]:
    yield wrap(loaded)
    unwrap(loaded)


@pytest.fixture(scope="session")
def drafter(pair: Pair, loaded: Any) -> Drafter:
    return load_drafter(pair.draft, loaded)
