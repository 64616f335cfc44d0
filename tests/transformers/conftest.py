"""Tiny real models, wrapped and unwrapped around each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eagle_adapters import unwrap, wrap
from eagle_adapters.tiny import build_tiny


@pytest.fixture
def wrapped() -> Iterator[Callable[[Any], Any]]:
    """Wrap a model for the time of a test."""
    models: list[Any] = []

    def adapt(model: Any) -> Any:
        models.append(wrap(model))
        return model

    yield adapt
    for model in models:
        unwrap(model)


@pytest.fixture
def kimi(wrapped: Callable[[Any], Any]) -> Any:
    """A wrapped tiny Kimi-K2.5."""
    return wrapped(build_tiny("kimi_k25"))


@pytest.fixture
def llama(wrapped: Callable[[Any], Any]) -> Any:
    """A wrapped tiny Llama."""
    return wrapped(build_tiny("llama"))
