"""Read a target's anatomy: from live modules (`inspect_model`) or from class definitions (`inspect_class`)."""

from eagle_adapters.introspect.anatomy import Agent, Anatomy, Fact, Link, Number, class_name, link_as_dict
from eagle_adapters.introspect.architectures import engine_class
from eagle_adapters.introspect.live import inspect_model
from eagle_adapters.introspect.source import inspect_class

__all__ = [
    "Agent",
    "Anatomy",
    "Fact",
    "Link",
    "Number",
    "class_name",
    "engine_class",
    "inspect_class",
    "inspect_model",
    "link_as_dict",
]
