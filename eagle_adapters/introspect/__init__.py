"""Read a target's anatomy: from live modules (`inspect_model`) or from class definitions (`inspect_class`)."""

from eagle_adapters.introspect.anatomy import Agent, Anatomy, Fact, Link, Number, class_name
from eagle_adapters.introspect.live import inspect_model

__all__ = ["Agent", "Anatomy", "Fact", "Link", "Number", "class_name", "inspect_model"]
