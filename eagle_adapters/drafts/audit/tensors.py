"""Audit of which tensors are there: missing, unknown, twice, or filled with one value."""

from __future__ import annotations

from collections.abc import Iterator

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.engine import SGLANG, VLLM
from eagle_adapters.drafts.header import TensorInfo
from eagle_adapters.drafts.spec import DraftSpec
from eagle_adapters.drafts.values import constant_value, readable

_HARMLESS = ("rotary_emb.inv_freq",)
"""Buffers that every engine makes itself."""

_MAPS = ("d2t", "t2d")


def audit_tensors(pair: Pair) -> Iterator[Diagnostic]:
    """EA706 no weights, EA740 missing, EA741 unknown, EA742 twice, EA743 one value throughout."""
    draft = pair.draft
    if not draft.has_weights:
        yield _no_weights(draft)
        return
    yield from _missing(draft)
    yield from _unknown(pair)
    for name, others in draft.doubles.items():
        yield _double(draft.tensors[name], others[0])
    for name, tensor in draft.tensors.items():
        if name not in _MAPS and readable(tensor):
            yield from _constant(name, tensor)


def _no_weights(draft: DraftSpec) -> Diagnostic:
    pickles = [path.name for path in draft.side_files]
    return Diagnostic(
        "EA706",
        "the draft's weights are pickles, which are never opened" if pickles else "only the draft's config was read",
        Severity.WARNING if pickles else Severity.NOTE,
        expected="*.safetensors beside config.json",
        found=", ".join(pickles) or "no weights",
        where=draft.name,
        consequence="shapes, vocabulary maps and values were not audited",
        next_step="convert the weights to safetensors" if pickles else "give the folder to audit the weights too",
    )


def _missing(draft: DraftSpec) -> Iterator[Diagnostic]:
    missing = [name for name in draft.required_tensors() if name not in draft.tensors]
    if missing:
        yield Diagnostic(
            "EA740",
            f"the draft lacks {len(missing)} of the tensors it needs",
            Severity.ERROR,
            expected=", ".join(missing),
            found="nothing by these names, in any known layout",
            where=", ".join(missing),
            consequence="SGLang leaves them random and says nothing; nothing is accepted",
            next_step="export the draft again; a conversion may have lost or renamed them",
        )


def _unknown(pair: Pair) -> Iterator[Diagnostic]:
    names = [tensor.name for tensor in pair.draft.unknown if not tensor.name.endswith(_HARMLESS)]
    if not names:
        return
    consequence = {
        VLLM: "vLLM stops: there is no module or parameter of that name",
        SGLANG: "SGLang drops them and says nothing: the draft runs without them",
        None: "vLLM stops on them, SGLang drops them and says nothing",
    }
    yield Diagnostic(
        "EA741",
        f"the draft has {len(names)} tensors that no known draft has",
        Severity.ERROR if pair.engine == VLLM else Severity.WARNING,
        expected="tensors of a Llama or MLA type EAGLE-3 draft",
        found=", ".join(names[:8]) + (", ..." if len(names) > 8 else ""),
        where=names[0],
        consequence=consequence[pair.engine],
        next_step="check that this checkpoint is a draft, and that its class is known",
    )


def _double(first: TensorInfo, second: TensorInfo) -> Diagnostic:
    return Diagnostic(
        "EA742",
        f"{first.name} is there twice",
        Severity.ERROR,
        expected="one tensor of this meaning",
        found=f"{first.name} in {_file(first)}, {second.name} in {_file(second)}",
        where=second.name,
        consequence="which one is used depends on the order of the files",
        next_step="remove the wrong one",
    )


def _constant(name: str, tensor: TensorInfo) -> Iterator[Diagnostic]:
    value = constant_value(tensor)
    if value is None:
        return
    zero = not any(value)
    if len(tensor.shape) == 1 and not zero:
        yield Diagnostic(
            "EA743",
            f"every weight of {tensor.name} is the same",
            Severity.NOTE,
            expected="trained norm weights",
            found=f"0x{value[::-1].hex()} throughout",
            where=tensor.name,
            consequence="none if this norm was not trained; otherwise its weights were lost",
        )
        return
    if name.endswith(".bias"):
        return
    yield Diagnostic(
        "EA743",
        f"{tensor.name} is {'zero' if zero else 'one value'} throughout",
        Severity.ERROR,
        expected="trained weights",
        found=f"0x{value[::-1].hex()} throughout",
        where=tensor.name,
        consequence="the draft's output does not depend on its input; nothing is accepted",
        next_step="export the draft again: a sharded save or a conversion lost this tensor",
    )


def _file(tensor: TensorInfo) -> str:
    return "the checkpoint" if tensor.file is None else tensor.file.name
