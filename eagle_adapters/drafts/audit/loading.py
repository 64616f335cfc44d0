"""Audit of loading: is the draft's class known, can it be read, and whose embedding and head will it use."""

from __future__ import annotations

from collections.abc import Iterator

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.engine import DRAFT_CLASSES, RELEASES, SGLANG, VLLM, knows_class
from eagle_adapters.drafts.spec import Weights

_TO_SGLANG = "eagle_adapters.drafts.convert.convert_draft(draft, folder, to='specforge')"


def audit_loading(pair: Pair) -> Iterator[Diagnostic]:
    """EA752 unknown class, EA753 cannot be loaded, EA754 embedding or head replaced or random."""
    for engine in pair.engines:
        if not knows_class(engine, pair.draft):
            yield _unknown_class(pair, engine)
        elif pair.draft.experts:
            yield _experts(pair, engine)
    if SGLANG in pair.engines and knows_class(SGLANG, pair.draft):
        yield from _sglang(pair)
    if VLLM in pair.engines:
        yield from _vllm(pair)


def _unknown_class(pair: Pair, engine: str) -> Diagnostic:
    draft = pair.draft
    plain = engine == SGLANG and any(not name.lower().count("eagle") for name in draft.architectures)
    return Diagnostic(
        "EA752",
        f"{RELEASES[engine]} has no draft class {', '.join(draft.architectures) or 'for this draft'}",
        pair.severity(engine, Severity.ERROR),
        expected=", ".join(sorted(DRAFT_CLASSES[engine])),
        found=", ".join(draft.architectures) or "no architectures",
        where="architectures",
        consequence="the engine loads it as a plain language model, or stops" if plain else "the engine stops at start",
        next_step=_rename(pair, engine),
    )


def _experts(pair: Pair, engine: str) -> Diagnostic:
    """Both classes build a dense MLP (vllm models/deepseek_eagle3.py, sglang models/kimi_k25_eagle3.py)."""
    return Diagnostic(
        "EA753",
        f"{RELEASES[engine]} has no draft with experts",
        pair.severity(engine, Severity.ERROR),
        expected="a dense MLP: mlp.gate_proj, up_proj, down_proj",
        found="experts",
        where="layers.0.mlp",
        consequence="vLLM stops on the experts' weights; SGLang drops them and runs a random MLP",
        next_step="train a draft with a dense MLP",
    )


def _rename(pair: Pair, engine: str) -> str:
    if pair.draft.nested and engine == SGLANG:
        return _TO_SGLANG
    name = "Eagle3DeepseekV2ForCausalLM" if pair.draft.latent else "LlamaForCausalLMEagle3"
    return f'if its layers are of that type, write "architectures": ["{name}"]'


def _sglang(pair: Pair) -> Iterator[Diagnostic]:
    """Sglang 0.5.23: models/llama_eagle3.py, models/kimi_k25_eagle3.py, models/llama.py:910 set_embed."""
    draft = pair.draft
    error, warning = pair.severity(SGLANG, Severity.ERROR), pair.severity(SGLANG, Severity.WARNING)
    tied = draft.config.get("tie_word_embeddings") is True
    stated = "draft_vocab_size" in draft.document
    if not stated and not tied and not draft.latent:
        yield Diagnostic(
            "EA753",
            f"{RELEASES[SGLANG]} reads draft_vocab_size, which the draft does not state",
            error,
            expected="draft_vocab_size",
            found="nothing",
            where="config.json: draft_vocab_size",
            consequence="the draft's class stops with an AttributeError",
            next_step='add "draft_vocab_size": '
            + (
                str(draft.draft_vocab_size)
                if draft.head is Weights.OWN
                else "null, so that the target's head is shared"
            ),
        )
    if draft.latent:
        yield from _misnamed(pair, SGLANG, ("model.", "aux_norm_"), "they are skipped, and their modules stay random")
    if draft.latent and draft.num_layers != 1:
        yield Diagnostic(
            "EA753",
            f"{RELEASES[SGLANG]}'s MLA draft has one layer",
            error,
            expected="num_hidden_layers 1",
            found=f"num_hidden_layers {draft.num_layers}",
            where="num_hidden_layers",
            consequence="the draft's class stops with a ValueError",
            next_step="serve with vLLM",
        )
    if draft.head is Weights.TARGET and draft.document.get("draft_vocab_size") is not None:
        yield _random(
            f"{RELEASES[SGLANG]} leaves the head random: draft_vocab_size is stated and lm_head.weight missing",
            error,
            "lm_head.weight",
            "nothing is accepted, silently",
            'write "draft_vocab_size": null, so that the target\'s head is shared, or export lm_head.weight',
        )
    if tied and draft.head is Weights.OWN:
        yield _random(
            f"{RELEASES[SGLANG]} drops the draft's head: tie_word_embeddings is true",
            error,
            "tie_word_embeddings",
            "the logits are those of the embedding; acceptance collapses",
            "set tie_word_embeddings to false",
        )
    width = draft.document.get("target_hidden_size", draft.hidden_size)
    shares = width == draft.hidden_size
    if draft.embedding is Weights.TARGET and not shares:
        yield _random(
            f"{RELEASES[SGLANG]} leaves the embedding random: target_hidden_size is {width} and the draft has none",
            error,
            "embed_tokens.weight",
            "nothing is accepted, silently",
            "remove target_hidden_size when it equals hidden_size, or export the embedding",
        )
    if draft.embedding is Weights.OWN and shares and _own_embedding_differs(pair):
        yield _random(
            f"{RELEASES[SGLANG]} replaces the draft's own embedding by the target's",
            warning,
            "embed_tokens.weight",
            "the draft runs on another embedding than it was trained with",
            "serve with vLLM",
        )


def _own_embedding_differs(pair: Pair) -> bool:
    return pair.draft.document.get("embed_requires_grad") is True


def _misnamed(pair: Pair, engine: str, prefixes: tuple[str, ...], consequence: str) -> Iterator[Diagnostic]:
    names = [tensor.name for tensor in pair.draft.tensors.values() if tensor.name.startswith(prefixes)]
    if names:
        yield Diagnostic(
            "EA753",
            f"{RELEASES[engine]} does not know {len(names)} tensors by their names",
            pair.severity(engine, Severity.ERROR),
            expected="names such as layers.0.*, fc.weight, fc_norm.0.weight",
            found=", ".join(names[:3]) + (", ..." if len(names) > 3 else ""),
            where=names[0],
            consequence=consequence,
            next_step="rename them: eagle_adapters.drafts.convert.convert_draft(draft, folder, to='modelopt')",
        )


def _vllm(pair: Pair) -> Iterator[Diagnostic]:
    """In vllm 0.32.0 models/llama_eagle3.py puts `model.` before every name; v1/spec_decode/llm_base_proposer.py."""
    draft = pair.draft
    yield from _misnamed(pair, VLLM, ("model.", "aux_norm_"), "vLLM stops: there is no module or parameter so named")
    if draft.head is Weights.TIED and not pair.target.tied:
        yield _random(
            f"{RELEASES[VLLM]} does not read tie_word_embeddings, and shares the target's head",
            pair.severity(VLLM, Severity.WARNING),
            "tie_word_embeddings",
            "the draft runs with another head than it was trained with",
            "export lm_head.weight",
        )


def _random(message: str, severity: Severity, where: str, consequence: str, next_step: str) -> Diagnostic:
    return Diagnostic(
        "EA754",
        message,
        severity,
        expected="the embedding and the head that the draft was trained with",
        where=where,
        consequence=consequence,
        next_step=next_step,
    )
