"""A test-side SGLang plug-in: says in the log which methods of a loaded model's classes were generated."""

import sys

from eagle_adapters.backends.imports import after_import


def register():
    after_import("sglang.srt.model_executor.model_runner", watch)


def watch(module):
    load = module.ModelRunner.load_model

    def load_and_tell(self, *args, **kwargs):
        load(self, *args, **kwargs)
        classes = {cls for part in self.model.modules() for cls in type(part).__mro__}
        found = sorted(f"{cls.__name__}.{name}" for cls in classes for name in vars(cls) if generated(vars(cls)[name]))
        sys.stderr.write(f"generated methods of {type(self.model).__name__}: {', '.join(found) or 'none'}\n")

    module.ModelRunner.load_model = load_and_tell


def generated(value):
    code = getattr(getattr(value, "fget", value), "__code__", None)
    return code is not None and code.co_filename.startswith("<eagle_adapters")
