"""Audit of quantisation, rotation, and of the target that the draft names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair

_PLAIN = ("BF16", "F16", "F32", "F64")


def audit_precision(pair: Pair) -> Iterator[Diagnostic]:
    """EA770 quantised, EA771 rotated, EA775 made for another target."""
    yield from _target(pair)
    yield from _draft(pair)
    yield from _verifier(pair)


def _target(pair: Pair) -> Iterator[Diagnostic]:
    target = pair.target
    if target.rotation is not None:
        yield Diagnostic(
            "EA771",
            "the target's weights are rotated",
            Severity.WARNING,
            expected="states in the basis the draft was trained in",
            found=target.rotation,
            where=target.rotation,
            consequence="captured states are rotated too: a draft trained on the unrotated model accepts nothing",
            next_step="train the draft on this target, or serve the unrotated model",
        )
    elif target.quantisation is not None:
        yield Diagnostic(
            "EA770",
            f"the target is quantised ({target.quantisation})",
            Severity.NOTE,
            expected="the precision the draft was trained with",
            found=target.quantisation,
            where="quantization_config",
            consequence="states differ a little from training, and acceptance with them; the draft itself must not "
            "inherit the quantisation",
        )


def _draft(pair: Pair) -> Iterator[Diagnostic]:
    draft = pair.draft
    stated = draft.document.get("quantization_config") or draft.config.get("quantization_config")
    weights = [tensor for name, tensor in draft.tensors.items() if name.endswith("_proj.weight")]
    plain = [tensor.name for tensor in weights if tensor.dtype in _PLAIN]
    if stated and weights and len(plain) == len(weights):
        yield Diagnostic(
            "EA770",
            "the draft says that it is quantised, but its weights are not",
            Severity.ERROR,
            expected="quantised weights, or no quantization_config",
            found=f"{weights[0].name} {weights[0].dtype}",
            where="quantization_config",
            consequence="the engine looks for scales that do not exist: loading stops, or weights are misread",
            next_step="remove quantization_config, which was copied from the target",
        )
    elif not stated and weights and not plain:
        yield Diagnostic(
            "EA770",
            "the draft's weights are quantised, but its config does not say how",
            Severity.ERROR,
            expected="quantization_config",
            found=f"{weights[0].name} {weights[0].dtype}",
            where="quantization_config",
            consequence="the engine takes quantised numbers for weights: nothing is accepted",
            next_step="add the quantization_config of the export",
        )


def _verifier(pair: Pair) -> Iterator[Diagnostic]:
    verifier, target = pair.draft.verifier, pair.target
    if not verifier:
        return
    ours, theirs = PurePath(verifier).name.lower(), PurePath(target.name).name.lower()
    if ours != theirs:
        yield Diagnostic(
            "EA775",
            f"the draft was made for {verifier}",
            Severity.NOTE,
            expected=verifier,
            found=target.name,
            where="speculators_config.verifier.name_or_path",
            consequence="a draft for another model accepts little, even where all widths agree",
        )
