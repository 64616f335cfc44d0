"""Audit of the switches in a draft's config: those without weights, and those that an engine release ignores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.engine import RELEASES, SGLANG, VLLM
from eagle_adapters.drafts.spec import DraftSpec, Format

_UNREAD = {
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
}
"""modelopt fields that no engine reads, with the value that every engine runs."""


def audit_flags(pair: Pair) -> Iterator[Diagnostic]:
    """EA750 ignored fields, EA751 norm switches without weights and the reverse."""
    draft = pair.draft
    if draft.tensors:
        yield from _norms(draft)
    yield from _unread(draft)
    if VLLM in pair.engines:
        yield from _vllm(pair)
    if SGLANG in pair.engines:
        yield from _sglang(pair)


def _norms(draft: DraftSpec) -> Iterator[Diagnostic]:
    states = [name for name in draft.tensors if name.startswith("fc_norm.")]
    pairs = (
        ("norm_before_fc", draft.norms.before_fc, "input_norm.weight" in draft.tensors, "input_norm.weight"),
        ("fc_norm", draft.norms.per_state, bool(states), "fc_norm.0.weight, ..."),
    )
    for field, on, there, weights in pairs:
        if on and not there:
            yield Diagnostic(
                "EA751",
                f"{field} is true, but its weights are missing",
                Severity.ERROR,
                expected=weights,
                found="no such tensor",
                where=field,
                consequence="the states are normed with weights of 1 that were never trained",
                next_step=f"export {weights}, or set {field} to false",
            )
        elif there and not on:
            yield Diagnostic(
                "EA751",
                f"the draft has {weights}, but {field} is not true",
                Severity.ERROR,
                expected=f"{field} true",
                found=f"{field} {'false' if _stated(draft, field) else 'not stated'}",
                where=field,
                consequence="the norm is left out, silently: acceptance collapses",
                next_step=f'add "{field}": true to config.json',
            )


def _stated(draft: DraftSpec, field: str) -> bool:
    return any(path.endswith(field) for path in draft.norms.stated.values())


def _unread(draft: DraftSpec) -> Iterator[Diagnostic]:
    eagle = draft.document.get("eagle_config")
    for field, usual in _UNREAD.items():
        value = eagle.get(field) if isinstance(eagle, dict) else None
        if value is not None and value != usual:
            yield _ignored(
                f"no engine reads eagle_config.{field}",
                Severity.WARNING,
                f"{usual!r}".lower(),
                f"{value!r}".lower(),
                f"eagle_config.{field}",
                "the engines run another draft than the one that was trained",
            )


def _vllm(pair: Pair) -> Iterator[Diagnostic]:
    draft, release = pair.draft, RELEASES[VLLM]
    chosen = pair.severity(VLLM, Severity.WARNING)
    if not draft.uses_states:
        yield _ignored(
            f"the V2 runner of {release} does not read use_aux_hidden_state",
            chosen,
            "use_aux_hidden_state false honoured",
            "three states are captured anyway",
            "eagle_config.use_aux_hidden_state",
            "the draft gets three states where it takes one",
            "VLLM_USE_V2_MODEL_RUNNER=0",
        )
    if draft.format is Format.SPECULATORS and "before_residual" not in draft.norms.stated:
        yield _ignored(
            f"norm_before_residual is not stated: {release} takes true, speculators false",
            chosen,
            "norm_before_residual stated",
            "nothing",
            "norm_before_residual",
            "the first layer's residual may be another than in training: acceptance drops",
            'add "norm_before_residual" as it was in training',
        )
    if draft.latent and draft.norms.before_fc:
        yield _ignored(
            f"{release} does not read norm_before_fc in MLA drafts",
            chosen,
            "norm_before_fc honoured",
            "ignored",
            draft.norms.stated.get("before_fc", "norm_before_fc"),
            "the states reach fc without their norm: acceptance collapses",
        )
    if draft.norms.stated.get("per_state", "").endswith("use_aux_norm") and draft.norms.per_state:
        yield _ignored(
            f"{release} reads fc_norm, not use_aux_norm",
            pair.severity(VLLM, Severity.ERROR),
            "fc_norm",
            "use_aux_norm",
            draft.norms.stated["per_state"],
            "loading stops on the norm's weights",
            'add "fc_norm": true',
        )
    if not draft.latent and draft.model_type != "qwen3" and _has(draft, r"\.self_attn\.[qk]_norm\."):
        yield _ignored(
            f"{release}'s Llama draft has no query and key norms",
            pair.severity(VLLM, Severity.ERROR),
            "no q_norm and k_norm",
            "q_norm and k_norm",
            "layers.0.self_attn.q_norm.weight",
            "loading stops on them",
            'state model_type "qwen3"',
        )
    yield from _bias(pair, VLLM, draft.tensors.get("fc.bias") is not None, "fc.bias", "loading stops on it")


def _sglang(pair: Pair) -> Iterator[Diagnostic]:
    draft, release = pair.draft, RELEASES[SGLANG]
    chosen = pair.severity(SGLANG, Severity.WARNING)
    if draft.norms.before_residual:
        yield _ignored(
            f"{release} does not read norm_before_residual",
            chosen,
            "the residual taken after hidden_norm",
            "the residual taken before it",
            draft.norms.stated.get("before_residual", "norm_before_residual"),
            "the first layer computes something else than in training: acceptance drops",
            "serve with vLLM",
        )
    if draft.latent and draft.norms.before_fc:
        yield _ignored(
            f"{release} does not read norm_before_fc in MLA drafts",
            chosen,
            "norm_before_fc honoured",
            "ignored",
            draft.norms.stated.get("before_fc", "norm_before_fc"),
            "the states reach fc without their norm: acceptance collapses",
        )
    if draft.nested:
        yield _ignored(
            f"{release} does not read a nested transformer_layer_config",
            pair.severity(SGLANG, Severity.ERROR),
            "a flat config",
            "transformer_layer_config",
            "transformer_layer_config",
            "the draft is built with default widths, or not at all",
            "eagle_adapters.drafts.convert.convert_draft(draft, folder, to='specforge')",
        )
    if not draft.latent and _has(draft, r"\.self_attn\.[qk]_norm\."):
        yield _ignored(
            f"{release}'s draft has no query and key norms",
            chosen,
            "no q_norm and k_norm",
            "q_norm and k_norm, dropped",
            "layers.0.self_attn.q_norm.weight",
            "attention runs without them: acceptance collapses",
            "serve with vLLM",
        )
    biased = _has(draft, r"\.self_attn\.[qkv]_proj\.bias") and not draft.latent
    yield from _bias(pair, SGLANG, biased, "layers.0.self_attn.q_proj.bias", "attention runs without it")
    lost = draft.tensors.get("fc.bias") is not None and draft.document.get("bias") is not True
    yield from _bias(pair, SGLANG, lost, "fc.bias", "the states reach the layer without it")
    deeper = [f"layers.{k}.hidden_norm.weight" for k in range(1, draft.num_layers)]
    absent = [name for name in deeper if draft.tensors and name not in draft.tensors]
    if absent:
        yield _ignored(
            f"{release} norms deeper layers with hidden_norm, the draft has input_layernorm there",
            chosen,
            ", ".join(absent),
            "input_layernorm, dropped",
            absent[0],
            "the deeper layers run with norm weights of 1",
            "serve with vLLM",
        )


def _bias(pair: Pair, engine: str, there: bool, name: str, consequence: str) -> Iterator[Diagnostic]:
    if there:
        yield _ignored(
            f"{RELEASES[engine]}'s draft has no {name}",
            pair.severity(engine, Severity.ERROR if engine == VLLM else Severity.WARNING),
            "no such tensor",
            name,
            name,
            consequence,
        )


def _has(draft: DraftSpec, pattern: str) -> bool:
    return any(re.search(pattern, name) for name in draft.tensors)


def _ignored(
    message: str,
    severity: Severity,
    expected: str,
    found: str,
    where: str,
    consequence: str,
    next_step: str | None = "serve with the other engine, or train without it",
) -> Diagnostic:
    return Diagnostic(
        "EA750",
        message,
        severity,
        expected=expected,
        found=found,
        where=where,
        consequence=consequence,
        next_step=next_step,
    )
