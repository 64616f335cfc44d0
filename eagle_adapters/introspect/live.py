"""The live agent: reads a target from its module objects, without importing torch or running the model."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

from eagle_adapters.introspect.anatomy import Agent, Anatomy, Number, class_name
from eagle_adapters.introspect.nodes import Child, Node
from eagle_adapters.introspect.survey import survey

_WRAPPERS = (
    *("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"),  # compile, FSDP, DeepSpeed
    *("module", "base_model", "model"),  # DDP and DataParallel, PeftModel, a PEFT tuner
)
_WRAPPER_CLASSES = frozenset(
    {
        *("OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"),
        *("CheckpointWrapper", "ActivationWrapper", "DeepSpeedEngine", "PeftModel", "BaseTuner"),
    }
)

_WRAPPER_PACKAGES = frozenset({"torch", "peft", "deepspeed", "fairscale", "accelerate"})
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")


def inspect_model(model: object, *, decoder: str | None = None) -> Anatomy:
    """The anatomy of a live model: chain, decoder, layers, embedding, head, norm, logits path, capture.

    Args:
        model: the target; any object with `_modules`, such as a `torch.nn.Module`, wrapped or not.
        decoder: path of the text decoder (or of its layers, or of a module around it) when it must be chosen.

    Returns:
        The anatomy; `owners` holds the class object of every link.

    Raises:
        IntrospectionError: EA201 two equally good decoders, EA202 none found, EA203 `decoder` names none.
    """
    anatomy = survey(_LiveNode(model), Agent.LIVE, decoder)
    owners = {}
    for link in anatomy.chain:
        module = model
        for name in filter(None, link.path.split(".")):
            module = _members(module)[name]
        owners[link.class_name] = type(module)
    return replace(anatomy, owners=owners)


class _LiveNode:
    """A module object, read through `_modules` and the instance's dictionary: no property runs, nothing is changed."""

    __slots__ = ("_children", "_module")

    def __init__(self, module: object) -> None:
        self._module = module
        self._children: tuple[Child, ...] | None = None

    @property
    def key(self) -> Hashable:
        return id(self._module)

    @property
    def class_name(self) -> str:
        return class_name(type(self._module))

    @property
    def where(self) -> str:
        return "the given model"

    @property
    def transparent(self) -> bool:
        return any(
            cls.__name__ in _WRAPPER_CLASSES and cls.__module__.partition(".")[0] in _WRAPPER_PACKAGES
            for cls in type(self._module).__mro__
        )

    @property
    def dynamic(self) -> bool:
        return False

    @property
    def items(self) -> int | None:
        return len(_members(self._module))

    def children(self) -> Sequence[Child]:
        if self._children is None:
            members = _members(self._module)
            if self.transparent:  # the wrapped module only; what a wrapper holds beside it is its own business
                members = dict([(name, members[name]) for name in _WRAPPERS if name in members][:1])
            self._children = tuple(
                Child(name, _LiveNode(module), f"attribute {name}") for name, module in members.items()
            )
        return self._children

    def attribute(self, name: str) -> Node | None:
        found = _members(self._module).get(name)
        if found is None:
            try:
                found = getattr(self._module, name)
            except Exception:  # an attribute of the target may raise anything
                return None
        return _LiveNode(found) if _is_module(found) or _is_container(found) else None

    def returned(self, method: str) -> Node | None:
        if self.method(method) is None:
            return None
        try:
            found = getattr(self._module, method)()
        except Exception:  # a method of the target may raise anything
            return None
        return _LiveNode(found) if _is_module(found) else None

    def method(self, name: str) -> str | None:
        for cls in type(self._module).__mro__:
            if name in vars(cls):
                return f"{class_name(cls)}.{name}"
        return None

    def uses(self, names: Iterable[str]) -> str | None:
        mentioned = _mentioned(type(self._module))
        return next((f"{name} in {self.class_name}.forward" for name in names if name in mentioned), None)

    def number(self, names: Sequence[str]) -> Number | None:
        where = "config"
        config: Any = _own(self._module).get("config")
        if not any(_integer(config, name) for name in names):
            for part in _TEXT_CONFIGS:
                inner = _safe(config, part)
                if inner is not None:
                    where, config = f"{where}.{part}", inner
        for name in names:
            if value := _integer(config, name):
                return Number(value, f"{where}.{name}")
        return None

    def width(self) -> Number | None:
        shape = _safe(_safe(self._module, "weight"), "shape")
        if shape is None or len(shape) != 2:
            return None
        return Number(int(shape[1]), f"width of {self.class_name}")


def _own(module: object) -> Mapping[str, Any]:
    try:
        return vars(module)
    except TypeError:
        return {}


def _safe(owner: object, name: str) -> Any:
    try:
        return getattr(owner, name, None)
    except Exception:  # an attribute of the target may raise anything
        return None


def _integer(owner: object, name: str) -> int | None:
    value = _safe(owner, name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _is_module(value: object) -> bool:
    return isinstance(_own(value).get("_modules"), Mapping) and not isinstance(value, type)


def _is_container(value: object) -> bool:
    """Whether a plain list, tuple or dict holds modules; only its first item is looked at."""
    if isinstance(value, Mapping):
        return bool(value) and _is_module(next(iter(value.values())))
    return isinstance(value, list | tuple) and bool(value) and _is_module(value[0])


def _members(value: object) -> dict[str, Any]:
    """The submodules by name: registered ones, then modules and lists or dicts of modules held unregistered."""
    if isinstance(value, Mapping):
        return {str(name): item for name, item in value.items() if _is_module(item)}
    if isinstance(value, list | tuple):
        return {str(index): item for index, item in enumerate(value) if _is_module(item)}
    own = _own(value)
    members = {name: item for name, item in own.get("_modules", {}).items() if item is not None}
    for name, item in own.items():
        if name not in members and not name.startswith("_") and (_is_module(item) or _is_container(item)):
            members[name] = item
    return members


def _mentioned(cls: type) -> set[str]:
    """Names in the class's forward, and in the methods of the class that it calls."""
    code = _code(cls, "forward")
    if code is None:
        return set()
    names = set(_names(code))
    for name in tuple(names):
        called = _code(cls, name)
        if called is not None and name != "forward":
            names.update(_names(called))
    return names


def _code(cls: type, name: str) -> CodeType | None:
    for owner in cls.__mro__:
        function = vars(owner).get(name)
        if function is None:
            continue
        if owner.__module__.startswith("torch.nn.modules"):
            return None
        try:
            function = inspect.unwrap(function)
        except ValueError:
            return None
        return function.__code__ if isinstance(function, FunctionType) else None
    return None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
