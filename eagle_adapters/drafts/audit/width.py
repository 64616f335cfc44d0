"""Audit of the widths: captured states against `fc`, hidden sizes, tensor shapes, number of layers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.engine import RELEASES, views
from eagle_adapters.drafts.spec import Weights

_PACKED = ("U8", "I8", "I32", "F4", "F6_E2M3", "F6_E3M2")
"""Dtypes of quantised weights whose shape is not the matrix's."""


def audit_width(pair: Pair) -> Iterator[Diagnostic]:
    """EA720 to EA725."""
    yield from _states(pair)
    yield from _hidden(pair)
    yield from _shapes(pair)
    yield from _layers(pair)
    for engine in pair.engines:
        yield from _engine(pair, engine)


def _states(pair: Pair) -> Iterator[Diagnostic]:
    draft = pair.draft
    fc = draft.tensors.get("fc.weight")
    if not draft.uses_states:
        if fc is not None:
            yield Diagnostic(
                "EA722",
                "the draft has fc.weight but says that it uses no captured states",
                Severity.ERROR,
                expected="use_aux_hidden_state true, or no fc.weight",
                found=f"use_aux_hidden_state false, {fc.name} {list(fc.shape)}",
                where="eagle_config.use_aux_hidden_state",
                consequence="the engines feed the last state alone: a wrong width or no acceptance",
                next_step="correct use_aux_hidden_state in config.json",
            )
        return
    if fc is not None and not any(claim.where.startswith(fc.name) for claim in draft.aux_claims):
        yield Diagnostic(
            "EA720",
            "the width of fc.weight is no multiple of the target's hidden size",
            Severity.ERROR,
            expected=f"[{draft.hidden_size}, states x {draft.target_hidden_size}]",
            found=f"{list(fc.shape)}",
            where=fc.name,
            consequence="no engine can load it",
            next_step=f"check {draft.target_hidden_where} in config.json",
        )
    claims = list(draft.aux_claims)
    if not draft.id_claims and any(claim.value != 3 for claim in claims):
        yield Diagnostic(
            "EA720",
            f"the draft takes {draft.num_aux} states but names no layer ids, and the default has three",
            Severity.ERROR,
            expected=f"{draft.num_aux} layer ids",
            found="none",
            where="config.json",
            consequence="the engines capture three states: loading or the first step stops on a wrong width",
            next_step="add the ids the draft was trained on to config.json",
        )
    if len({claim.value for claim in claims}) > 1:
        yield Diagnostic(
            "EA720",
            "the draft's statements of the number of captured states disagree",
            Severity.ERROR,
            expected=str(claims[0]),
            found="; ".join(str(claim) for claim in claims[1:]),
            where=claims[-1].where,
            consequence="loading stops on a wrong width, or the draft gets too few states",
            next_step="correct config.json; the shape of fc.weight is right",
        )


def _hidden(pair: Pair) -> Iterator[Diagnostic]:
    draft, target = pair.draft, pair.target
    if draft.target_hidden_size != target.hidden_size:
        yield Diagnostic(
            "EA723",
            f"the draft was made for a target of width {draft.target_hidden_size}, not {target.hidden_size}",
            Severity.ERROR,
            expected=f"{target.hidden_size} ({target.text_path}: hidden_size)",
            found=f"{draft.target_hidden_size} ({draft.target_hidden_where})",
            where=draft.target_hidden_where,
            consequence="fc gets states of another width, and stops",
            next_step="use a draft for this target, or state target_hidden_size",
        )
    elif draft.hidden_size != target.hidden_size and draft.embedding is Weights.TARGET:
        yield Diagnostic(
            "EA723",
            f"the draft is {draft.hidden_size} wide, has no embedding, and cannot share one {target.hidden_size} wide",
            Severity.ERROR,
            expected="embed_tokens.weight in the draft",
            found="no embedding",
            where="embed_tokens.weight",
            consequence="SGLang runs on a random embedding, vLLM stops on a wrong width",
            next_step="export the draft with its embedding",
        )


def _shapes(pair: Pair) -> Iterator[Diagnostic]:
    draft = pair.draft
    wanted = draft.required_tensors() | {"embed_tokens.weight": (draft.vocab_size, draft.hidden_size)}
    counted = any(claim.where == "num_aux_hidden_states" for claim in draft.aux_claims)
    for name, shape in wanted.items():
        tensor = draft.tensors.get(name)
        if tensor is None or shape is None or tensor.shape == shape or tensor.dtype in _PACKED:
            continue
        if name == "fc.weight" and tensor.shape[:1] == shape[:1] and not counted:
            continue  # the number of states has its own finding
        yield Diagnostic(
            "EA724",
            f"{tensor.name} does not have the shape that the config implies",
            Severity.ERROR,
            expected=str(list(shape)),
            found=str(list(tensor.shape)),
            where=tensor.name,
            consequence="the engine stops while loading the draft",
            next_step="correct the widths in config.json, or export the weights again",
        )


def _layers(pair: Pair) -> Iterator[Diagnostic]:
    draft = pair.draft
    if not draft.tensors:
        return
    numbers = {int(found[1]) for name in draft.tensors if (found := re.match(r"layers\.(\d+)\.", name))}
    if numbers == set(range(draft.num_layers)):
        return
    copied = draft.num_layers == pair.target.num_layers
    yield Diagnostic(
        "EA725",
        f"the config says {draft.num_layers} layers, the tensors have layers {sorted(numbers)}",
        Severity.ERROR,
        expected=f"num_hidden_layers {len(numbers)}",
        found=f"num_hidden_layers {draft.num_layers}" + (", copied from the target" if copied else ""),
        where="num_hidden_layers",
        consequence="the missing layers stay random, or the engine refuses: EAGLE-3 drafts have one layer",
        next_step=f"set num_hidden_layers to {len(numbers)} in config.json",
    )


def _engine(pair: Pair, engine: str) -> Iterator[Diagnostic]:
    draft = pair.draft
    if not draft.uses_states:
        return
    found = {view.num_aux: view for view in views(engine, draft, pair.target) if view.num_aux != draft.num_aux}
    for view in found.values():
        yield Diagnostic(
            "EA721",
            f"{RELEASES[engine]} builds fc for {view.num_aux} states, the draft has {draft.num_aux}",
            pair.severity(engine, Severity.ERROR),
            expected=f"fc.weight [{draft.hidden_size}, {draft.num_aux} x {draft.target_hidden_size}]",
            found=f"[{draft.hidden_size}, {view.num_aux} x {draft.target_hidden_size}]",
            where=draft.id_claims[0].where if draft.id_claims else "config.json",
            consequence="the engine reads the number of states from another field than the ids: loading stops",
            next_step=f'add "num_aux_hidden_states": {draft.num_aux} to the draft\'s layer config',
        )
