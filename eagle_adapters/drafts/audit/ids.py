"""Audit of the layer ids: conflicts, range, order, meaning, and what the engines would make of them."""

from __future__ import annotations

from collections.abc import Iterator

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.engine import RELEASES, EngineView, unreachable, views

CALIBRATE = "measure it: eagle-adapters calibrate TARGET --draft DRAFT"


def audit_ids(pair: Pair) -> Iterator[Diagnostic]:
    """EA710 conflict, EA713 undecided, EA714 none, EA715 order, EA716 read otherwise, EA717 out of reach."""
    yield from _conflicts(pair)
    reading = pair.reading
    if reading is None or not pair.draft.uses_states:
        return
    if reading.ids is None:
        yield _no_ids(pair)
    elif tuple(sorted(reading.ids)) != reading.ids:
        yield Diagnostic(
            "EA715",
            f"the layer ids {list(reading.ids)} are not ascending",
            Severity.WARNING,
            expected=f"{sorted(reading.ids)}",
            found=f"{list(reading.ids)}",
            where=pair.draft.id_claims[0].where,
            consequence="the engines deliver the states in ascending order, so fc gets them in the wrong places",
            next_step="permute the column blocks of fc.weight, and write the ids ascending",
        )
    if not reading.decided:
        yield _undecided(pair)
    for engine in pair.engines:
        yield from _engine(pair, engine)


def _conflicts(pair: Pair) -> Iterator[Diagnostic]:
    claims = pair.draft.id_claims
    if len({claim.value for claim in claims}) < 2:
        return
    first, *others = claims
    other = next(claim for claim in others if claim.value != first.value)
    # Ids at the top as boundaries and nested ones as layer outputs is what makes one file right in both engines.
    same = not first.where.startswith("eagle_config") and other.value == tuple(n - 1 for n in first.value)
    yield Diagnostic(
        "EA710",
        "the draft states its layer ids twice, as boundaries and as layer outputs"
        if same
        else "the draft states different layer ids in two places",
        Severity.NOTE if same else Severity.ERROR,
        expected="the same ids everywhere",
        found="; ".join(f"{claim.where} {list(claim.value)}" for claim in claims),
        where=f"{first.where}, {other.where}",
        consequence="vLLM takes the top-level ids, SGLang the nested ones"
        + ("" if same else ": at least one engine captures the wrong states"),
        next_step=None if same else "remove the wrong ones from config.json",
    )


def _no_ids(pair: Pair) -> Diagnostic:
    boundaries = [int(b) for b in pair.boundaries or ()]
    return Diagnostic(
        "EA714",
        f"the draft names no layer ids, so the default boundaries {boundaries} are used",
        Severity.NOTE,
        expected="eagle_config.eagle_aux_hidden_state_layer_ids",
        found="nothing",
        where="config.json",
        consequence="right for drafts trained with the usual tools; a draft trained on other states gets almost no "
        "acceptance, and no engine warns",
        next_step=f"if acceptance is low, {CALIBRATE}",
    )


def _undecided(pair: Pair) -> Diagnostic:
    reading = pair.reading
    assert reading is not None
    options = "; ".join(f"{c} gives {[int(b) for b in bs]}" for c, bs in reading.candidates.items())
    engines = "; ".join(
        f"{RELEASES[view.engine]} {_runner(view)}would capture {_list(view.boundaries)}"
        for engine in pair.engines
        for view in views(engine, pair.draft, pair.target)
    )
    return Diagnostic(
        "EA713",
        f"the layer ids {list(reading.ids or ())} can be read in more than one way for {reading.num_layers} layers",
        Severity.WARNING,
        expected="ids of a default triple, N among the ids, a registered checkpoint, or a declared convention",
        found=options,
        where=pair.draft.id_claims[0].where,
        consequence=f"{engines}: one layer off costs most of the acceptance, and nothing warns",
        next_step=f"declare it (--convention boundary or layer_output), or {CALIBRATE}",
    )


def _engine(pair: Pair, engine: str) -> Iterator[Diagnostic]:
    wanted = pair.boundaries
    if wanted is None:
        return
    for view in views(engine, pair.draft, pair.target):
        if view.boundaries is None or sorted(view.boundaries) != sorted(wanted):
            yield _misread(pair, view)
    for boundary in wanted:
        why = unreachable(engine, pair.target, boundary)
        if why is not None:
            yield Diagnostic(
                "EA717",
                f"{pair.target.architectures[0]} cannot capture boundary {boundary} in {RELEASES[engine]}",
                pair.severity(engine, Severity.ERROR),
                expected=f"boundaries {_list(wanted)}",
                found=why,
                where=f"boundary {boundary} of {pair.target.num_layers}",
                consequence="one state is missing: the draft stops on a wrong width, or runs on other states",
                next_step="use another engine, or a draft without this boundary",
            )


def _misread(pair: Pair, view: EngineView) -> Diagnostic:
    wanted = pair.boundaries or ()
    taken = "its default" if view.ids is None else f"{view.ids.where} as {view.convention}"
    return Diagnostic(
        "EA716",
        f"{RELEASES[view.engine]} {_runner(view)}would capture {_list(view.boundaries)}, not {_list(wanted)}",
        pair.severity(view.engine, Severity.WARNING),
        expected=f"boundaries {_list(wanted)}",
        found=f"boundaries {_list(view.boundaries)}, from {taken}",
        where=pair.draft.id_claims[0].where if pair.draft.id_claims else "config.json",
        consequence="the draft gets states it was not trained on; acceptance drops, often to almost nothing, silently",
        next_step="serve with eagle-adapters installed, which hands the engine the right ids, or rewrite the ids with "
        "eagle_adapters.drafts.convert.convert_draft",
    )


def _runner(view: EngineView) -> str:
    return "" if view.runner == RELEASES[view.engine] else f"{view.runner} "


def _list(boundaries: tuple[int, ...] | None) -> str:
    return "nothing (it stops)" if boundaries is None else str([int(b) for b in boundaries])
