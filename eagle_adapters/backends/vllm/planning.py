"""From a vLLM model class to the edits that make it an EAGLE-3 target, or the reasons why it cannot be one."""

from __future__ import annotations

import dataclasses
from typing import Any

from eagle_adapters.apply import applied_edit, method_digest
from eagle_adapters.backends.vllm import chain as chains
from eagle_adapters.backends.vllm import wording
from eagle_adapters.backends.vllm.chain import Chain
from eagle_adapters.codegen.decoder import capturing_forward
from eagle_adapters.codegen.instrument import Instrumented
from eagle_adapters.codegen.sources import class_source
from eagle_adapters.codegen.style import VLLM
from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.errors import AdaptationError, EagleAdaptersError
from eagle_adapters.introspect.anatomy import class_name
from eagle_adapters.plan import AddAttribute, AddMethod, Edit, InstrumentForward, Plan, Refusal

ENGINE = "vllm"
STYLE = dataclasses.replace(VLLM, relay=False)
"""States are not sent between pipeline ranks: nobody has proven that here, so more than one rank is refused."""

PROTOCOL = (
    "supports_eagle3",
    "has_own_lm_head",
    "has_own_embed_tokens",
    "set_aux_hidden_state_layers",
    "get_eagle3_default_aux_hidden_state_layers",
)
"""The structural protocol (vllm 0.32.0, model_executor/models/interfaces.py SupportsEagle3)."""

REPAIRED = {
    "vllm.model_executor.models.deepseek_v2:DeepseekV2Model": (
        "aux_hidden_state = hidden_states + residual",
        "aux_hidden_state = hidden_states.clone() if residual is None else hidden_states + residual",
        "its own capture adds a residual that is None at boundary 0",
    ),
}
"""Decoders whose own capture is kept but for one line (vllm 0.32.0): class -> line, what it has to be, why."""


def plan_class(cls: type, version: str, *, decoder: str | None = None) -> Plan | Refusal:
    """The edits for a vLLM model class.

    Args:
        cls: a class of vLLM's registry.
        version: the installed vLLM.
        decoder: dotted attribute path of the text decoder, where it cannot be told.
    """
    target = class_name(cls)
    if "__new__" in vars(cls):
        return _refuse(
            target,
            Diagnostic(
                "EA521",
                f"{cls.__qualname__} cannot be adapted: what it constructs is of another class",
                expected="a class that is what it builds",
                found=f"{cls.__qualname__}.__new__",
                consequence="the engine would not find hooks that are added to it",
                next_step=_WITHOUT,
            ),
        )
    chain: Chain | None = None
    try:
        chain = chains.find_chain(cls, decoder)
        reason = _unbroken(chain)
        if reason is not None:
            return _as_it_is(cls, version) if _supported(cls) else _refuse(target, reason)
        edits, findings = [], []
        if not chain.dynamic:
            captured, notes = _decoder_edits(chain)
            edits += captured
            findings += notes
        edits += _reach_edits(chain)
        if _returns_decoder(chain):
            findings.append(
                Diagnostic(
                    "EA530",
                    f"{cls.__qualname__} gives its decoder as language model, which has no head to share",
                    Severity.WARNING,
                    consequence="the draft must bring its own head",
                )
            )
        edits += _hook_edits(chain)
    except EagleAdaptersError as error:
        if _supported(cls) and (chain is None or not _broken(cls, chain)):
            return _as_it_is(cls, version)
        return Refusal(target, ENGINE, tuple(map(_with_next_step, error.diagnostics)))
    return Plan(
        target,
        ENGINE,
        version,
        chain.anatomy,
        tuple(edits),
        tuple(findings),
        owners={class_name(c): c for owner in chain.classes for c in owner.__mro__},
    )


def _with_next_step(reason: Diagnostic) -> Diagnostic:
    return reason if reason.next_step else dataclasses.replace(reason, next_step=_WITHOUT)


_WITHOUT = "serve it without a speculative config: this class cannot be an EAGLE-3 target yet"


def _refuse(target: str, reason: Diagnostic) -> Refusal:
    return Refusal(target, ENGINE, (reason,))


def _as_it_is(cls: type, version: str) -> Plan:
    """Nothing to do: vLLM supports the class in a way of its own, which is left alone."""
    return Plan(class_name(cls), ENGINE, version, None, ())


def _unbroken(chain: Chain) -> Diagnostic | None:
    """Why the states would be lost on the way out, or None."""
    for cls, name in zip(chain.classes, chain.names, strict=False):
        lost = chains.hands_on(cls, name)
        if lost is not None:
            return Diagnostic(
                "EA522",
                f"{cls.__qualname__}.forward does not hand on what `{name}` returns",
                expected=f"return self.{name}(...)",
                found=lost,
                consequence="the captured states would be lost or spoiled",
                next_step=_WITHOUT,
            )
    return None


def _decoder_edits(chain: Chain) -> tuple[list[Edit], list[Diagnostic]]:
    """The capturing forward of the decoder and what it needs beside it."""
    cls = chain.decoder
    method = class_source(cls).method("forward")
    assert method is not None
    owner = next(c for c in cls.__mro__ if class_name(c) == method.owner)
    done = applied_edit(owner, "forward")
    if chains.captures_itself(cls):
        repair = REPAIRED.get(class_name(owner))
        if repair is None:
            return [], []
        line, instead, why = repair
        # The capture stays the class's own: it gathers what ranks share, but float16 scales its states as well.
        text = capturing_forward(cls, STYLE, layers=chain.layers, anew=True)
        limits = [limit for limit in _limits(cls, text) if limit.code == "EA524"]
        if done is not None:
            return [done], limits
        if method.text.count(line) != 1:
            return [], limits  # a release without the fault
        digest = method_digest(vars(owner)["forward"]) or ""
        edit = InstrumentForward(class_name(owner), "forward", method.text.replace(line, instead), why, digest)
        return [edit], limits
    text = capturing_forward(cls, STYLE, layers=chain.layers)
    stateful = _stateful(chain)
    if stateful is not None:
        raise AdaptationError(stateful)
    notes = [*text.notes, *_limits(cls, text)]
    if isinstance(done, InstrumentForward):
        generated = done
    else:
        why = f"{owner.__qualname__}.forward captures nothing"
        digest = method_digest(vars(owner)["forward"]) or text.original_sha256
        generated = InstrumentForward(class_name(owner), "forward", text.source, why, digest)
    why = "the capturing forward reads it"
    edits: list[Edit] = [generated]
    if not hasattr(owner, "aux_hidden_state_layers") or applied_edit(owner, "aux_hidden_state_layers") is not None:
        edits.append(AddAttribute(class_name(owner), "aux_hidden_state_layers", (), why))
    for name, source in wording.MIXIN.items():
        if not hasattr(owner, name) or applied_edit(owner, name) is not None:
            edits.append(AddMethod(class_name(owner), name, source, "the hook of the model hands the boundaries to it"))
    return edits, notes


def _stateful(chain: Chain) -> Diagnostic | None:
    """Why a target with recurrent layers is refused, or None.

    Its state has moved on by the time a drafted token is rejected; only some of vLLM's layers take it back
    (vllm 0.32.0, model_executor/layers/mamba: mamba_mixer2 does, mamba_mixer does not).
    """
    stateful = next((cls for cls in chain.classes if getattr(cls, "has_inner_state", False)), None)
    if stateful is None:
        return None
    return Diagnostic(
        "EA521",
        f"{stateful.__qualname__} cannot be adapted: its layers keep a recurrent state",
        expected="attention over a cache, from which rejected tokens are dropped",
        found="has_inner_state = True",
        consequence="no one has shown that rejected tokens leave no trace in that state",
        next_step=_WITHOUT,
    )


def _limits(cls: type, text: Instrumented) -> list[Diagnostic]:
    """What must hold for the states to be right, as findings that the plug-in checks against the configuration."""
    residual = text.residual
    limits = (
        (residual.tensor_parallel_safe, "EA523", "may hand on partial sums between its layers", _ONE_RANK),
        (residual.float16_safe, "EA524", "scales its stream in float16", "the states are right in other types only"),
        (residual.sequence_parallel_safe, "EA532", "may hand on a share of the rows between its layers", _WHOLE_ROWS),
    )
    return [
        Diagnostic(code, f"{cls.__qualname__} {what}", Severity.WARNING, found=_shown(text), consequence=consequence)
        for safe, code, what, consequence in limits
        if not safe
    ]


_ONE_RANK = "the states are right with one tensor-parallel rank only"
_WHOLE_ROWS = "the states are right without sequence-parallel experts only"


def _shown(text: Instrumented) -> str:
    return "; ".join(f"{evidence.where}: {evidence.says}" for evidence in text.residual.evidence)


def _reach_edits(chain: Chain) -> list[Edit]:
    """Names under which the engine looks for decoder, embedding and head (v1/spec_decode/llm_base_proposer.py)."""
    if chain.dynamic:
        return []
    decoder = chain.decoder
    if _returns_decoder(chain):
        # `get_language_model()` gives the decoder, and its `model` is read all the same
        return _alias(decoder, "model", "", "the engine looks for the decoder under this name")
    edits: list[Edit] = []
    shared = "the draft shares the target's embedding under this name"
    # all that is below the language model, the innermost class with a head, is one model to the engine
    at = len(chain.names) - 1 if chain.causal is None else chain.causal
    embedding = chain.embedding
    if embedding is not None and at + 1 < len(chain.names):
        edits += _alias(chain.classes[at + 1], "embed_tokens", ".".join((*chain.names[at + 1 :], embedding)), shared)
    elif embedding not in ("embed_tokens", "embedding", None):
        edits += _alias(decoder, "embedding", embedding, shared)
    if at < 0:
        return edits
    causal = chain.classes[at]
    if chain.names[at] != "model" and not chains.assigns(causal, "model"):
        edits += _alias(causal, "model", chain.names[at], "the engine looks for the decoder under this name")
    if chain.causal is not None and chain.head != "lm_head":
        edits += _alias(causal, "lm_head", chain.head, "the draft shares the target's head under this name")
    return edits


def _returns_decoder(chain: Chain) -> bool:
    """Whether a multimodal target gives its decoder as language model: no causal model with a head is between."""
    if chain.dynamic or len(chain.classes) < 2:
        return False
    return bool(getattr(chain.classes[0], "supports_multimodal", False)) and not chain.causal


def _alias(owner: type, name: str, path: str | None, why: str) -> list[Edit]:
    if name in vars(owner) and applied_edit(owner, name) is None:
        return []
    return [AddMethod(class_name(owner), name, wording.alias(name, path or ""), why)]


def _hook_edits(chain: Chain) -> list[Edit]:
    """The five attributes of the protocol on every class between the target and the decoder, innermost first."""
    edits: list[Edit] = []
    above = len(chain.classes) if chain.dynamic else len(chain.classes) - 1
    for index in range(above - 1, -1, -1):
        cls, name = chain.classes[index], chain.names[index]
        next_is_decoder = not chain.dynamic and index == above - 1
        if _supported(cls) and not _broken(cls, chain):
            continue
        inner = "_set_aux_hidden_state_layers" if next_is_decoder else "set_aux_hidden_state_layers"
        sources = {
            "set_aux_hidden_state_layers": wording.set_layers(name, inner),
            "get_eagle3_default_aux_hidden_state_layers": wording.default_layers(
                name, chain.layers if next_is_decoder else None
            ),
        }
        why = f"{cls.__qualname__} is no SupportsEagle3"
        for attribute, value in (
            ("supports_eagle3", True),
            ("has_own_lm_head", False),
            ("has_own_embed_tokens", False),
        ):
            if not hasattr(cls, attribute) or applied_edit(cls, attribute) is not None:
                edits.append(AddAttribute(class_name(cls), attribute, value, why))
        for hook, source in sources.items():
            if hook not in vars(cls) or applied_edit(cls, hook) is not None:
                edits.append(AddMethod(class_name(cls), hook, source, why))
    return edits


def _supported(cls: type) -> bool:
    return all(hasattr(cls, name) for name in PROTOCOL) and not any(applied_edit(cls, name) for name in PROTOCOL)


def _broken(cls: type, chain: Chain) -> bool:
    """Whether the class claims support by inheritance over a decoder that is no mixin: its own hook asserts.

    Over an inner model that the checkpoint chooses it may be one or not, so that the inner model is asked instead.
    """
    from vllm.model_executor.models.interfaces import EagleModelMixin

    if any("set_aux_hidden_state_layers" in vars(c) for c in cls.__mro__ if not _is_protocol(c)):
        return False
    return chain.dynamic or not issubclass(chain.decoder, EagleModelMixin)


def _is_protocol(cls: type) -> Any:
    return getattr(cls, "_is_protocol", False)
