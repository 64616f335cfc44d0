"""The way from a vLLM target class to its decoder: wrapper, causal language model, decoder."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eagle_adapters.backends.vllm.members import Part, parts
from eagle_adapters.codegen.loops import read_forward
from eagle_adapters.codegen.native import captures
from eagle_adapters.codegen.sources import MethodSource, class_source
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError, IntrospectionError
from eagle_adapters.introspect.anatomy import Agent, Anatomy, Fact, Link, class_name

_TOWARDS = (
    "language_model", "llm", "lm", "thinker", "text_model", "text", "model", "decoder", "transformer", "gpt_neox",
    "backbone",
)  # fmt: skip
"""Attribute names that lead towards the text decoder, in the order they are tried."""

_LISTS = ("layers", "h", "blocks", "block")
_EMBEDDINGS = ("embed_tokens", "embedding", "wte", "embed_in", "word_embeddings", "tok_embeddings", "embed")
_HEADS = ("lm_head", "embed_out", "output", "head", "output_layer")
_NORMS = ("norm", "final_layernorm", "ln_f", "final_layer_norm", "norm_f")


@dataclass(frozen=True, slots=True)
class Chain:
    """Where the decoder of a target class is.

    Attributes:
        classes: from the target to the decoder, or to the last one before an inner model that the checkpoint chooses.
        names: the attributes between them; one more than the links when the last part is dynamic.
        dynamic: the part that the checkpoint chooses, or None.
        layers: attribute of the decoder that lists the layers; None when dynamic.
    """

    classes: tuple[type, ...]
    names: tuple[str, ...]
    dynamic: Part | None
    layers: str | None

    @property
    def decoder(self) -> type:
        """The last class; the decoder itself unless the chain is dynamic."""
        return self.classes[-1]


def find_chain(cls: type, decoder: str | None = None) -> Chain:
    """The chain of a target class.

    Args:
        cls: a vLLM model class.
        decoder: dotted attribute path of the decoder, when it is to be chosen.

    Raises:
        IntrospectionError: EA202, nothing that runs layers was found; EA203, `decoder` names nothing.
    """
    wanted = tuple(decoder.split(".")) if decoder else None
    # A class that has layers and does not run them in its forward is the decoder too: planning says what is wrong.
    found = _walk(cls, (), (cls,), wanted, layer_list) or _walk(cls, (), (cls,), wanted, _assigned_layers)
    if found is None:
        raise IntrospectionError(
            Diagnostic(
                "EA203" if wanted else "EA202",
                f"no text decoder was found in {class_name(cls)}",
                expected=decoder or f"a class with a loop over its layers behind one of {', '.join(_TOWARDS)}",
                found=", ".join(sorted(parts(cls))) or "no parts",
                next_step="name it: eagle_adapters.wrap(cls, decoder='path.to.decoder')",
            )
        )
    return found


def _walk(
    cls: type,
    names: tuple[str, ...],
    classes: tuple[type, ...],
    wanted: tuple[str, ...] | None,
    list_of: Callable[[type], str | None],
) -> Chain | None:
    if wanted is None or names == wanted:
        layers = list_of(cls)
        if layers is not None:
            return Chain(classes, names, None, layers)
    if len(names) > 3:
        return None
    for name in _TOWARDS if wanted is None else wanted[len(names) : len(names) + 1]:
        part = parts(cls).get(name)
        if part is None:
            continue
        inner = [*part.classes, *(c for a in part.architectures if (c := _registered(a)) is not None)]
        for candidate in inner:
            if candidate not in classes:
                found = _walk(candidate, (*names, name), (*classes, candidate), wanted, list_of)
                if found is not None:
                    return found
        if part.dynamic and not inner:
            return Chain(classes, (*names, name), part, None)
    return None


def _registered(architecture: str) -> type | None:
    from vllm.model_executor.models import ModelRegistry

    found: type | None = ModelRegistry._try_load_model_cls(architecture)
    return found


def layer_list(cls: type) -> str | None:
    """The attribute that a class's own forward walks as its list of layers, or None when it walks none."""
    try:
        source = class_source(cls)
        method = source.method("forward")
        if method is None:
            return None
        if captures(method.parse()) is not None:
            return next((name for name in _LISTS if f"self.{name}" in method.text), None)
        return read_forward(method).loop.iteration.layers.removeprefix("self.")
    except AdaptationError as error:
        # A loop that cannot be rewritten is still the decoder: planning says why.
        if error.code != "EA421" and "self.layers" in textwrap.dedent(inspect.getsource(cls)):
            return "layers"
        return None


def _assigned_layers(cls: type) -> str | None:
    return next((name for name in _LISTS if name in parts(cls)), None)


def anatomy(chain: Chain) -> Anatomy:
    """The chain as the library's anatomy."""
    paths = [".".join(chain.names[:i]) for i in range(len(chain.names) + 1)]
    links = [
        Link(path, class_name(cls), _where(chain, i))
        for i, (path, cls) in enumerate(zip(paths, chain.classes, strict=False))
    ]
    if chain.dynamic is not None:
        links.append(Link(paths[-1], "chosen by the checkpoint", chain.dynamic.where, dynamic=True))
        return Anatomy(class_name(chain.classes[0]), Agent.SOURCE, tuple(links), None)
    decoder = paths[len(chain.classes) - 1]
    head = _first(chain.classes[-2] if len(chain.classes) > 1 else chain.decoder, _HEADS)
    above = paths[len(chain.classes) - 2] if len(chain.classes) > 1 else ""
    return Anatomy(
        class_name(chain.classes[0]),
        Agent.SOURCE,
        tuple(links),
        Fact(_join(decoder, chain.layers or "layers"), f"forward of {class_name(chain.decoder)}"),
        embedding=_fact(decoder, chain.decoder, _EMBEDDINGS),
        head=None if head is None else Fact(_join(above, head.name), head.where),
        final_norm=_fact(decoder, chain.decoder, _NORMS),
        capture=Fact(decoder, "forward") if captures_itself(chain.decoder) else None,
        owners={class_name(cls): cls for cls in chain.classes},
    )


def captures_itself(decoder: type) -> bool:
    """Whether the decoder's own forward captures states."""
    method = class_source(decoder).method("forward")
    return method is not None and captures(method.parse()) is not None


def embedding_name(decoder: type) -> str | None:
    """The decoder's attribute for its token embedding."""
    part = _first(decoder, _EMBEDDINGS)
    return None if part is None else part.name


def head_name(causal: type) -> str | None:
    """The attribute of a causal language model for its output head."""
    part = _first(causal, _HEADS)
    return None if part is None else part.name


def _first(cls: type, names: tuple[str, ...]) -> Part | None:
    found = parts(cls)
    return next((found[name] for name in names if name in found), None)


def _fact(path: str, cls: type, names: tuple[str, ...]) -> Fact | None:
    part = _first(cls, names)
    return None if part is None else Fact(_join(path, part.name), part.where)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _where(chain: Chain, index: int) -> str:
    if index == 0:
        return "the target"
    return parts(chain.classes[index - 1])[chain.names[index - 1]].where


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
