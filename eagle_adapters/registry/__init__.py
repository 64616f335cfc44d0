"""What is known about model families, engines and drafts, from hand-edited YAML files that are checked strictly."""

from eagle_adapters.registry.checks import config_digest
from eagle_adapters.registry.loader import Registry, convention_for, engine_status, load, read
from eagle_adapters.registry.schema import json_schema

__all__ = ["Registry", "config_digest", "convention_for", "engine_status", "json_schema", "load", "read"]
