"""A test-side SGLang plug-in: takes hooks away from classes, as if the release did not have them yet.

`STRIP` names them: `module:Class.method`, separated by commas.
"""

import os

from eagle_adapters.backends.imports import after_import


def register():
    for name in filter(None, os.environ.get("STRIP", "").split(",")):
        module, _, rest = name.partition(":")
        owner, _, attribute = rest.partition(".")
        after_import(
            module, lambda loaded, owner=owner, attribute=attribute: delattr(getattr(loaded, owner), attribute)
        )
