"""The way from a vLLM target class to its decoder, on classes: wrapper, causal language model, decoder."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from itertools import pairwise
from typing import Any

from eagle_adapters.codegen.native import captures
from eagle_adapters.codegen.sources import MethodSource, class_source
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect import inspect_class
from eagle_adapters.introspect.anatomy import Anatomy, Fact, Link, class_name


@dataclass(frozen=True, slots=True)
class Chain:
    """Where the decoder of a target class is.

    Attributes:
        anatomy: what its source says; it ends before an inner model that the checkpoint chooses.
        classes: of its links, from the target to the decoder, or to the last one before such an inner model.
        names: the attributes between them; one more than the links when the last part is dynamic.
    """

    anatomy: Anatomy
    classes: tuple[type, ...]
    names: tuple[str, ...]

    @property
    def dynamic(self) -> bool:
        """Whether the checkpoint chooses the inner model, which is adapted when its own class is looked up."""
        return self.anatomy.dynamic

    @property
    def decoder(self) -> type:
        """The last class; the decoder itself unless the chain is dynamic."""
        return self.classes[-1]

    @property
    def layers(self) -> str | None:
        """Attribute of the decoder that lists the layers; None when dynamic."""
        return None if self.anatomy.layers is None else self.anatomy.layers.path.rpartition(".")[2]

    @property
    def embedding(self) -> str | None:
        """The decoder's attribute for its token embedding."""
        return _below(self.anatomy.embedding, self.anatomy.decoder.path)

    @property
    def causal(self) -> int | None:
        """Position of the causal language model: the link above the decoder that holds the output head."""
        above = self.anatomy.chain[: len(self.names)]
        return next((i for i, link in enumerate(above) if _below(self.anatomy.head, link.path) is not None), None)

    @property
    def head(self) -> str | None:
        """The causal language model's attribute for its output head."""
        return None if self.anatomy.head is None else self.anatomy.head.path.rpartition(".")[2]


def find_chain(cls: type, decoder: str | None = None) -> Chain:
    """The chain of a target class.

    Args:
        cls: a vLLM model class.
        decoder: dotted attribute path of the decoder, when it is to be chosen.

    Raises:
        IntrospectionError: EA201 two equally good decoders, EA202 none, EA203 `decoder` names none, EA204 no source.
    """
    anatomy = inspect_class(class_name(cls), decoder=decoder)
    links = anatomy.chain
    # what the config decides between is looked up by the engine itself, one class at a time
    open_at = next((i for i, link in enumerate(links) if link.dynamic or (i and link.others)), None)
    if open_at is not None:
        chosen = Link(links[open_at].path, "chosen by the checkpoint", links[open_at].where, dynamic=True)
        links = (*links[:open_at], chosen)
        anatomy = Anatomy(anatomy.target, anatomy.agent, links, None)
    classes = (cls, *(_class(link.class_name) for link in links[1:] if not link.dynamic))
    names = tuple(_below(link, above.path) or link.path for above, link in pairwise(links))
    owners = {class_name(c): c for c in classes}
    return Chain(dataclasses.replace(anatomy, owners=owners), classes, names)


def _class(name: str) -> type:
    module, _, qualname = name.partition(":")
    found: type = reduce(getattr, qualname.split("."), import_module(module))  # type: ignore[assignment]
    return found


def _below(part: Fact | Link | None, path: str) -> str | None:
    """The name of a part directly below the module at `path`, or None when it is elsewhere."""
    if part is None:
        return None
    above, _, name = part.path.rpartition(".")
    return name if above == path else None


def assigns(cls: type, name: str) -> bool:
    """Whether a constructor of the class sets the attribute `name` itself."""
    constructors = [vars(owner).get("__init__") for owner in cls.__mro__ if not owner.__module__.startswith("torch")]
    return any(
        f"self.{name} = " in inspect.getsource(inspect.unwrap(_original(constructor)))
        for constructor in constructors
        if inspect.isfunction(constructor)
    )


def _original(function: Any) -> Any:
    """The class's own constructor behind vLLM's compile decorator, which keeps it in a closure as `old_init`."""
    closure = getattr(function, "__closure__", None) or ()
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return next((cell.cell_contents for name, cell in zip(names, closure, strict=True) if name == "old_init"), function)


def captures_itself(decoder: type) -> bool:
    """Whether the decoder's own forward captures states."""
    method = class_source(decoder).method("forward")
    return method is not None and captures(method.parse()) is not None


def hands_on(cls: type, name: str) -> str | None:
    """None when `forward` of `cls` returns what `self.<name>...` returned, untouched; else what it returns instead."""
    method = class_source(cls).method("forward")
    if method is None:
        return "no forward"
    tree = _tree(method)
    calls = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_call(node.value, name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    spoiled = {
        node.id
        for other in ast.walk(tree)
        if isinstance(other, ast.Assign | ast.AugAssign)
        and not (isinstance(other, ast.Assign) and _is_call(other.value, name))
        for target in (other.targets if isinstance(other, ast.Assign) else [other.target])
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    }
    results = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    for value in results:
        if value is not None and _is_call(value, name):
            continue
        if isinstance(value, ast.Name) and value.id in calls and value.id not in spoiled:
            continue
        return (
            f"{method.where(value) if value is not None else method.file}: return {ast.unparse(value) if value else ''}"
        )
    return None if results else "no return"


def _tree(method: MethodSource) -> ast.AST:
    """The method as a tree; a docstring less indented than its `def` keeps dedent from moving it to column 0."""
    try:
        return method.parse()
    except AdaptationError:
        return ast.parse(f"if True:\n{method.text}")


def _is_call(value: ast.expr, name: str) -> bool:
    if not isinstance(value, ast.Call):
        return False
    function: Any = value.func
    while isinstance(function, ast.Attribute):
        if isinstance(function.value, ast.Name) and function.value.id == "self":
            return bool(function.attr == name)
        function = function.value
    return False
