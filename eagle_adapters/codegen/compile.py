"""Compile one generated method from its one source text, readable in tracebacks and by `inspect.getsource`."""

from __future__ import annotations

import ast
import hashlib
import linecache
from types import FunctionType
from typing import Any

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError

MARKER = "__eagle_adapters__"
"""Attribute set on every generated function; its value is the owner's class name."""


def source_digest(source: str) -> str:
    """The sha256 of a source text, as plans record it."""
    return hashlib.sha256(source.encode()).hexdigest()


def compile_method(source: str, name: str, owner: type, namespace: dict[str, Any] | None = None) -> Any:
    """Compile `source` (one `def` or decorated `def` at column 0) into a method of `owner`.

    Args:
        source: the whole text of the method.
        name: the name it must define.
        owner: the class it will belong to; names are looked up in its module.
        namespace: global names to use instead of the module's, e.g. those of the function that is replaced.

    Returns:
        A function or a descriptor (property, classmethod). Zero-argument `super()` works.

    Raises:
        AdaptationError: EA405, the text does not compile or does not define `name`.
    """
    import sys

    qualified = f"{owner.__module__}.{owner.__qualname__}.{name}"
    filename = f"<eagle_adapters {qualified} {source_digest(source)[:12]}>"
    module_globals = namespace if namespace is not None else vars(sys.modules[owner.__module__])
    try:
        tree = ast.parse(source)
        # Wrapping the def in a function that has `__class__` as a cell keeps zero-argument super() alive.
        factory = ast.parse("def __eagle_adapters_factory__(__class__):\n    pass\n")
        function_def = factory.body[0]
        assert isinstance(function_def, ast.FunctionDef)
        function_def.body = [*tree.body, ast.parse(f"return {name}").body[0]]
        ast.fix_missing_locations(factory)
        scope: dict[str, Any] = {}
        exec(compile(factory, filename, "exec"), module_globals, scope)
        method = scope["__eagle_adapters_factory__"](owner)
    except (SyntaxError, NameError, KeyError) as error:
        raise AdaptationError(
            Diagnostic(
                "EA405",
                f"the generated method {qualified} does not compile",
                found=repr(error),
                next_step="report this",
            )
        ) from error
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    for function in _functions_of(method):
        function.__qualname__ = f"{owner.__qualname__}.{name}"
        function.__module__ = owner.__module__
        setattr(function, MARKER, f"{owner.__module__}:{owner.__qualname__}")
    return method


def _functions_of(method: Any) -> list[FunctionType]:
    if isinstance(method, FunctionType):
        return [method]
    if isinstance(method, property):
        return [f for f in (method.fget, method.fset, method.fdel) if isinstance(f, FunctionType)]
    inner = getattr(method, "__func__", None) or getattr(method, "__wrapped__", None)
    return [inner] if isinstance(inner, FunctionType) else []
