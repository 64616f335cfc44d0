"""Tiny models and inputs, re-exported from `eagle_adapters.tiny`."""

from eagle_adapters.tiny import *  # noqa: F403
