"""Plan the hooks of a `transformers` model or class: two generated methods that lead to what was found."""

from __future__ import annotations

from typing import Any

from eagle_adapters.apply import applied_edit
from eagle_adapters.contract import check, contract_for
from eagle_adapters.diagnostics import Diagnostic, Report
from eagle_adapters.errors import ContractError, IntrospectionError
from eagle_adapters.introspect import Anatomy, inspect_model
from eagle_adapters.introspect.anatomy import class_name, resolve
from eagle_adapters.plan import AddMethod, Edit, Plan, Refusal

ENGINE = "transformers"

SEVERAL_STREAMS = {
    "altup_projections": "AltUp keeps several streams between the layers",
    "hc_head": "hyper-connections keep several streams between the layers",
}
"""Members of a decoder that show that what passes between its layers is not one residual stream."""


def plan_model(model: Any, version: str, *, decoder: str | None = None) -> Plan | Refusal:
    """The plan that gives a live model `eagle3_capture` and `get_embed_and_head`, or why it cannot have them."""
    target = class_name(type(model))
    try:
        contract_for(ENGINE, version)
        anatomy = inspect_model(model, decoder=decoder)
    except (ContractError, IntrospectionError) as error:
        return Refusal(target, ENGINE, tuple(error.diagnostics))
    reasons = _reasons_to_refuse(model, anatomy)
    if reasons:
        return Refusal(target, ENGINE, reasons)
    root = anatomy.adapted
    owner = anatomy.owners[root.class_name]
    sources = {"eagle3_capture": _capture_source(anatomy, root.path)}
    if anatomy.embedding is not None and anatomy.head is not None:
        sources["get_embed_and_head"] = _embed_and_head_source(anatomy, root.path)
    return _plan(target, version, anatomy, owner, sources, check(resolve(model, root.path), ENGINE, version))


def plan_class(cls: type, version: str, *, decoder: str | None = None) -> Plan | Refusal:
    """The plan for a class of which there is no instance yet; its methods find the decoder of each model when used."""
    target = class_name(cls)
    try:
        findings = check(cls, ENGINE, version)
    except ContractError as error:
        return Refusal(target, ENGINE, tuple(error.diagnostics))
    if not callable(getattr(cls, "forward", None)):
        reason = Diagnostic(
            "EA403", f"{target} is not a model class", expected="a class with a `forward`", found="none"
        )
        return Refusal(target, ENGINE, (reason,))
    sources = {name: source.replace("<decoder>", repr(decoder)) for name, source in _LATE.items()}
    return _plan(target, version, None, cls, sources, findings)


def layers_path(anatomy: Anatomy) -> str:
    """The path of the layer list; a live model always has one."""
    assert anatomy.layers is not None, "only the source agent can end before the layers"
    return anatomy.layers.path


def relative(path: str, root: str) -> str:
    """`path` as seen from `root`, both dotted paths from the target."""
    return path.removeprefix(root).removeprefix(".") if root else path


def _plan(
    target: str, version: str, anatomy: Anatomy | None, owner: type, sources: dict[str, str], findings: Report
) -> Plan:
    edits: list[Edit] = []
    for name, source in sources.items():
        if name in vars(owner) and applied_edit(owner, name) is None:
            continue  # defined by the class itself; `findings` says whether it fits
        why = f"{owner.__qualname__} has no `{name}`"
        edits.append(AddMethod(class_name(owner), name, source, why))
    return Plan(target, ENGINE, version, anatomy, tuple(edits), tuple(findings), owners={class_name(owner): owner})


def _reasons_to_refuse(model: Any, anatomy: Anatomy) -> tuple[Diagnostic, ...]:
    decoder = resolve(model, anatomy.decoder.path)
    return tuple(
        Diagnostic(
            "EA403",
            f"{type(decoder).__qualname__} cannot be captured: {why}",
            expected="one residual stream [batch, tokens, hidden] between the layers",
            found=f"`{anatomy.decoder.path}.{member}`".replace("`.", "`"),
            where=anatomy.decoder.where,
            next_step="an EAGLE-3 draft needs one stream; there is no boundary to capture here",
        )
        for member, why in SEVERAL_STREAMS.items()
        if getattr(decoder, member, None) is not None
    )


def _expression(path: str) -> str:
    return f"self.{path}" if path else "self"


def _capture_source(anatomy: Anatomy, root: str) -> str:
    decoder = _expression(relative(anatomy.decoder.path, root))
    layers = _expression(relative(layers_path(anatomy), root))
    return (
        "def eagle3_capture(self, boundaries=None):\n"
        f'    """A context that records the residual stream of `{decoder}` at `boundaries`."""\n'
        "    from eagle_adapters.backends.transformers.capture import open_capture\n"
        "\n"
        f"    return open_capture({decoder}, {layers}, boundaries)\n"
    )


def _embed_and_head_source(anatomy: Anatomy, root: str) -> str:
    assert anatomy.embedding is not None
    assert anatomy.head is not None
    embedding = _expression(relative(anatomy.embedding.path, root))
    head = _expression(relative(anatomy.head.path, root))
    return (
        "def get_embed_and_head(self):\n"
        '    """The embedding and head weights, each [vocab, hidden]."""\n'
        f"    return {embedding}.weight, {head}.weight\n"
    )


_LATE = {
    "eagle3_capture": '''\
def eagle3_capture(self, boundaries=None):
    """A context that records the residual stream at `boundaries`; the decoder is found when this is called."""
    from eagle_adapters.backends.transformers.late import capture_of

    return capture_of(self, boundaries, decoder=<decoder>)
''',
    "get_embed_and_head": '''\
def get_embed_and_head(self):
    """The embedding and head weights, each [vocab, hidden]; they are found when this is called."""
    from eagle_adapters.backends.transformers.late import embed_and_head_of

    return embed_and_head_of(self, decoder=<decoder>)
''',
}
"""The methods of a wrapped class."""
