"""What is known about model families, engines and drafts, from hand-edited YAML files that are checked strictly."""

from eagle_adapters.registry.loader import Registry, convention_for, load, read
from eagle_adapters.registry.schema import json_schema

__all__ = ["Registry", "convention_for", "json_schema", "load", "read"]
