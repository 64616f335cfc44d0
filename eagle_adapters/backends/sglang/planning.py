"""Plan the EAGLE-3 interface of a model class of SGLang: the hooks, the hand-over of states, the capture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eagle_adapters.apply import applied_edit
from eagle_adapters.backends.sglang import hooks
from eagle_adapters.backends.sglang.capture import resolve
from eagle_adapters.backends.sglang.decoder import Capture, plan_capture
from eagle_adapters.backends.sglang.passthrough import (
    calls_processor,
    hands_states_on,
    head_given,
    pass_states_on,
    running_forward,
)
from eagle_adapters.codegen.compile import source_digest
from eagle_adapters.codegen.sources import MethodSource, class_source
from eagle_adapters.contract import check, contract_for
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import EagleAdaptersError
from eagle_adapters.introspect import Anatomy, inspect_model
from eagle_adapters.introspect.anatomy import class_name
from eagle_adapters.introspect.source import inspect_class
from eagle_adapters.plan import (
    AddAttribute,
    AddMethod,
    Edit,
    InstrumentForward,
    NormaliseIds,
    PassThrough,
    Plan,
    Refusal,
)

ENGINE = "sglang"


def plan_target(target: Any, version: str, *, decoder: str | None = None) -> Plan | Refusal:
    """The plan for a model class, or for a model; see `SGLangBackend.plan`."""
    cls = target if isinstance(target, type) else type(target)
    name = class_name(cls)
    try:
        contract_for(ENGINE, version)
        anatomy = _anatomy(target, decoder)
        if anatomy.dynamic:
            reason = Diagnostic(
                "EA540",
                f"the decoder of {name} is chosen by the checkpoint",
                expected="a class whose constructor names its decoder",
                found=anatomy.decoder.where,
                next_step="give wrap the model itself; the plug-in does so once it is built",
            )
            return Refusal(name, ENGINE, (reason,))
        return _plan(target, cls, version, anatomy)
    except EagleAdaptersError as error:
        return Refusal(name, ENGINE, tuple(error.diagnostics))


def _anatomy(target: Any, decoder: str | None) -> Anatomy:
    if not isinstance(target, type):
        return inspect_model(target, decoder=decoder)
    return inspect_class(class_name(target), decoder=decoder)


def _plan(target: Any, cls: type, version: str, anatomy: Anatomy) -> Plan:
    owners = _owners(anatomy, cls)
    chain = {link.path: owners[link.class_name] for link in anatomy.chain}
    assert anatomy.layers is not None, "a chain that is not dynamic ends at the layers"
    holder = _holder(anatomy, chain)
    if anatomy.decoder.class_name.partition(".")[0] == "transformers":
        raise hooks.refused(
            f"{class_name(cls)} runs the decoder of transformers inside SGLang",
            expected="a decoder written for SGLang",
            found=anatomy.decoder.class_name,
        )
    capture = plan_capture(chain[anatomy.decoder.path], anatomy)
    broken = not isinstance(target, type) and _embedding_is_out_of_reach(target, anatomy)
    edits = [
        *_hooks(anatomy, chain, holder, capture, broken),
        *_hand_over(chain[holder], owners),
        *_capture(capture, owners),
    ]
    return Plan(
        class_name(cls), ENGINE, version, anatomy, tuple(edits), tuple(check(target, ENGINE, version)), owners=owners
    )


def _owners(anatomy: Anatomy, cls: type) -> dict[str, type]:
    import importlib

    owners = dict(anatomy.owners)
    owners.setdefault(class_name(cls), cls)
    for link in anatomy.chain:
        if link.class_name not in owners:
            module, _, name = link.class_name.partition(":")
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            owners[link.class_name] = found
    return owners


def _holder(anatomy: Anatomy, chain: Mapping[str, type]) -> str:
    """The path of the module on the chain that calls its logits processor; others may own one that they never call."""
    for path, cls in chain.items():
        forward = running_forward(class_source(cls))
        if forward is not None and calls_processor(forward):
            return path
    raise hooks.refused(
        f"no class between {anatomy.target} and its decoder calls a logits processor",
        expected="a forward with a call of self.logits_processor",
        found=", ".join(link.class_name for link in anatomy.chain),
    )


def _embedding_is_out_of_reach(model: Any, anatomy: Anatomy) -> bool:
    """Whether the model's own `get_embed_and_head` fails though its embedding is there (sglang 0.5.23, opt.py)."""
    model = resolve(model, anatomy.adapted.path)
    if anatomy.embedding is None or not hasattr(model, "get_embed_and_head"):
        return False
    if not hasattr(resolve(model, hooks.relative(anatomy.embedding.path, anatomy.adapted.path)), "weight"):
        return False  # another pipeline rank has it
    try:
        model.get_embed_and_head()
    except AttributeError:
        return True
    return False


def _hooks(anatomy: Anatomy, chain: Mapping[str, type], holder: str, capture: Capture, broken: bool) -> Iterator[Edit]:
    root = anatomy.adapted.path
    owner = chain[root]
    source = hooks.setter_source(anatomy, root, holder, capture)
    why = "the engine asks the top-level model to capture; layer ids are read in one way for every class"
    yield _method(owner, hooks.SETTER, source, why)
    head = _head(anatomy, chain[holder], holder)
    places = [path for path in chain if hooks.within(path, root) and hooks.within(holder, path)]
    if broken and "get_embed_and_head" in vars(owner) and not applied_edit(owner, "get_embed_and_head"):
        own = _source(owner, "get_embed_and_head")
        yield PassThrough(
            class_name(owner),
            "get_embed_and_head",
            hooks.delegations(*head, root)["get_embed_and_head"],
            f"{owner.__qualname__}.get_embed_and_head looks for the embedding where it is not",
            source_digest(own.text),
        )
    for path in places:
        yield from _missing_methods(hooks.delegations(*head, path), chain[path])
    for cls in dict.fromkeys((owner, chain[holder])):
        if not hasattr(cls, "capture_aux_hidden_states") or applied_edit(cls, "capture_aux_hidden_states"):
            yield AddAttribute(class_name(cls), "capture_aux_hidden_states", False, "read before the setter was called")


def _head(anatomy: Anatomy, holder: type, path: str) -> tuple[str, str]:
    """The paths of embedding and head; a tied model may have no head but what it gives its logits processor."""
    given = None if anatomy.head is not None else head_given(_forward(holder))
    head = anatomy.head.path if anatomy.head is not None else None if given is None else f"{path}.{given}".lstrip(".")
    if anatomy.embedding is None or head is None:
        raise hooks.refused(
            f"the embedding or the head of {anatomy.target} was not found",
            expected="both; the draft shares them",
            found=f"embedding {anatomy.embedding}, head {head}",
        )
    return anatomy.embedding.path, head


def _missing_methods(sources: Mapping[str, str], cls: type) -> Iterator[Edit]:
    for name, source in sources.items():
        if not hasattr(cls, name) or applied_edit(cls, name):
            yield AddMethod(
                class_name(cls), name, source, f"{cls.__qualname__} has no `{name}`, which the engine reads"
            )


def _method(cls: type, name: str, source: str, why: str) -> Edit:
    """Add a method, or replace the class's own."""
    applied = applied_edit(cls, name)
    if name not in vars(cls) or isinstance(applied, AddMethod):
        return AddMethod(class_name(cls), name, source, why)
    digest = applied.original_sha256 if isinstance(applied, NormaliseIds) else source_digest(_source(cls, name).text)
    return NormaliseIds(class_name(cls), name, source, why, digest)


def _hand_over(cls: type, owners: dict[str, type]) -> Iterator[Edit]:
    found = _forward(cls)
    if hands_states_on(found):
        return
    definer = _register_owner(cls, found, owners)
    yield PassThrough(
        class_name(definer),
        "forward",
        pass_states_on(found),
        "the decoder returns (hidden, states); the states belong to the logits processor",
        source_digest(found.text),
    )


def _capture(capture: Capture, owners: dict[str, type]) -> Iterator[Edit]:
    if capture.source is None:
        return
    definer = _register_owner(capture.cls, capture.method, owners)
    owners[class_name(definer)] = definer
    if "layers_to_capture" not in vars(definer) or applied_edit(definer, "layers_to_capture"):
        yield AddAttribute(class_name(definer), "layers_to_capture", (), "captures nothing until it is asked to")
    yield InstrumentForward(
        class_name(definer), capture.method.name, capture.source, capture.why, capture.original_sha256
    )


def _forward(cls: type) -> MethodSource:
    return _found(running_forward(class_source(cls)), cls, "forward")


def _source(cls: type, name: str) -> MethodSource:
    return _found(class_source(cls).method(name), cls, name)


def _found(found: MethodSource | None, cls: type, name: str) -> MethodSource:
    if found is None:
        raise hooks.refused(
            f"{class_name(cls)}.{name} has no source", expected="a method in a source file", found="none"
        )
    return found


def _register_owner(cls: type, method: MethodSource, owners: dict[str, type]) -> type:
    """The class of the inheritance line that defines a method; it becomes known to the plan."""
    for base in cls.__mro__:
        if class_name(base) == method.owner:
            owners[method.owner] = base
            return base
    raise hooks.refused(
        f"{method.owner}, which defines `{method.name}`, is no base of {class_name(cls)}",
        expected="a class in its method resolution order",
        found=", ".join(class_name(base) for base in cls.__mro__),
    )
