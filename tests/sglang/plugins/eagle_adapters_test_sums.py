"""A test-side SGLang plug-in: says in the log when a layer hands on a sum that is not reduced over the ranks yet."""

import sys

from eagle_adapters.backends.imports import after_import

SIGN = "postponed sum"


def register():
    after_import("sglang.srt.layers.layer_boundary.residual.stream", watch)


def watch(module):
    record = module.ResidualStream.record

    def watched(self, output, update, **declared):
        handle = record(self, output, update, **declared)
        if isinstance(handle, module.OwedOutput):
            sys.stderr.write(f"{SIGN}\n")
        return handle

    module.ResidualStream.record = watched
