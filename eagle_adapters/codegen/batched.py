"""Read decoders that leave the residual to the engine: sglang 0.5.23 keeps it in the batch (`residual_batch`).

There the engine itself knows the stream: `residual_batch.complete_output` finishes a deferred all-reduce and
`residual_batch.snapshot` gives output plus residual. That holds for plain additions and for updates that the layer
writes at its own exit; every other declared read or update is refused, because the snapshot would not be the stream.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from eagle_adapters.codegen.loops import RESIDUAL_BATCH, Forward
from eagle_adapters.codegen.sources import ClassSource, FunctionSource, Module, dotted
from eagle_adapters.codegen.streams import Evidence, Residual, StreamForm

_DECLARES = "declare_"
_READS = frozenset(
    (
        "PLAIN_READOUT",
        "NORM_READOUT",
        "NORM_QUANT_READOUT",
        "UNFUSED_NORM_READOUT",
        "NormReadout",
        "NormQuantReadout",
    )
)
"""Reads that norm the stream as it is (sglang 0.5.23, layers/layer_boundary/residual/{add_norm,post_norm}.py)."""

_UPDATES = frozenset(("PLAIN_ADD", "REPLACE_AT_EXIT", "PostNormAdd"))
"""Updates after which the stream is one tensor (same files)."""


def read_batched(forward: Forward, classes: Sequence[ClassSource]) -> Residual:
    """The residual form of a decoder whose residual the engine keeps in the batch.

    Args:
        forward: the decoder's forward.
        classes: the classes of its layers.
    """
    folds = any(_calls(forward.tree, "fold"))
    for name in ("read_output", *(() if folds else ("set_written",))):
        for node in _calls(forward.tree, name):
            return _several(forward.method.where(node), f"{RESIDUAL_BATCH}.{name}")
    declared: list[Evidence] = []
    for module in _modules(classes):
        for call in _declarations(module):
            where = f"{module.file}:{call.lineno}"
            for keyword in call.keywords:
                if keyword.arg in ("read", "update") and not _plain(module, keyword):
                    return _several(where, ast.unparse(keyword))
            declared.append(Evidence(where, f"{ast.unparse(call.func)} declares a plain stream"))
    if not declared:
        says = f"no declaration of a stage was found for {', '.join(cls.node.name for cls in classes)}"
        return Residual(StreamForm.UNKNOWN, (Evidence(forward.loop.where, says),))
    kept = Evidence(forward.loop.where, f"{RESIDUAL_BATCH}.start({forward.loop.batch}) keeps the residual")
    return Residual(StreamForm.BATCHED, (kept, *declared))


def _several(where: str, found: str) -> Residual:
    return Residual(StreamForm.STREAMS, (Evidence(where, f"{found}: the stream is not output plus residual"),))


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) == f"{RESIDUAL_BATCH}.{name}":
            yield node


def _modules(classes: Sequence[ClassSource]) -> list[Module]:
    """The modules of the layers' classes and of the functions they call by name."""
    found: dict[str, Module] = {}
    for owner in (owner for cls in classes for owner in cls.lineage()):
        found.setdefault(owner.module.name, owner.module)
        for node in ast.walk(owner.node):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            function = owner.module.lookup(name) if "stage" in name else None
            if isinstance(function, FunctionSource):
                found.setdefault(function.module.name, function.module)
    return list(found.values())


def _declarations(module: Module) -> Iterator[ast.Call]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").split(".")[-1].startswith(_DECLARES):
            yield node


def _plain(module: Module, keyword: ast.keyword) -> bool:
    """Whether a declared read is a plain norm, or a declared update leaves one tensor."""
    values = list(_definitions(module, keyword.value)) or [keyword.value]
    names = [name for value in values for name in _outer_names(value)]
    if keyword.arg == "read":
        return bool(names) and all(name in _READS for name in names)
    return bool(names) and all(name in _UPDATES for name in names)


def _outer_names(value: ast.expr) -> list[str]:
    """The name of a value, or of what makes it; both of a conditional."""
    if isinstance(value, ast.IfExp):
        return [*_outer_names(value.body), *_outer_names(value.orelse)]
    name = dotted(value.func if isinstance(value, ast.Call) else value)
    return ["" if name is None else name.split(".")[-1]]


def _definitions(module: Module, value: ast.expr) -> Iterator[ast.expr]:
    """What a lower-case name stands for: the values of a variable or a parameter, or the results of a method."""
    wanted = (dotted(value.func if isinstance(value, ast.Call) else value) or "").split(".")[-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign):
            if any(isinstance(t, ast.Name) and t.id == wanted for t in node.targets):
                yield node.value
        elif isinstance(node, ast.keyword):
            if node.arg == wanted and dotted(node.value) != wanted:
                yield node.value
        elif isinstance(node, ast.arguments):
            for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
                if argument.arg == wanted and default is not None:
                    yield default
        elif isinstance(node, ast.FunctionDef) and node.name == wanted:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield inner.value
