"""Audit of the vocabularies: the maps `d2t` and `t2d`, the head's rows, the tokenizer, multimodal token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.drafts.audit.pair import Pair
from eagle_adapters.drafts.header import TensorInfo
from eagle_adapters.drafts.spec import DraftSpec, Weights
from eagle_adapters.drafts.values import read_integers, readable
from eagle_adapters.errors import DataError

_REMAKE = "take d2t and t2d from the training run that made the head; maps from other data do not fit"


def audit_vocabulary(pair: Pair) -> Iterator[Diagnostic]:
    """EA730 to EA738."""
    yield from _sizes(pair)
    yield from _head(pair.draft)
    yield from _media(pair)
    draft = pair.draft
    d2t, t2d = draft.tensors.get("d2t"), draft.tensors.get("t2d")
    if d2t is None:
        if draft.has_weights and not draft.full_vocabulary:
            yield _no_map(draft)
        return
    if len(d2t.shape) != 1 or d2t.shape[0] != draft.draft_vocab_size:
        yield Diagnostic(
            "EA735",
            "d2t does not have one entry for each token of the draft vocabulary",
            Severity.ERROR,
            expected=f"[{draft.draft_vocab_size}]",
            found=str(list(d2t.shape)),
            where=d2t.name,
            consequence="draft tokens are mapped to wrong tokens, or the engine stops",
            next_step=_REMAKE,
        )
    elif readable(d2t):
        yield from _maps(draft, d2t, t2d)


def _maps(draft: DraftSpec, d2t: TensorInfo, t2d: TensorInfo | None) -> Iterator[Diagnostic]:
    try:
        offsets = read_integers(d2t)
        mask = read_integers(t2d) if t2d is not None and readable(t2d) else None
    except DataError as error:
        yield Diagnostic(
            "EA735",
            "a vocabulary map is not a list of integers",
            Severity.ERROR,
            expected="d2t int64 offsets, t2d booleans",
            found=error.diagnostics[0].found,
            where=error.diagnostics[0].where,
            consequence="the engine stops, or maps draft tokens to wrong tokens",
            next_step=_REMAKE,
        )
        return
    tokens = [k + offset for k, offset in enumerate(offsets)]
    findings = list(_offsets(draft, d2t, offsets, tokens))
    yield from findings
    if not findings and mask is not None and t2d is not None:
        yield from _mask(draft, t2d, mask, tokens)


def _offsets(draft: DraftSpec, d2t: TensorInfo, offsets: Sequence[int], tokens: Sequence[int]) -> Iterator[Diagnostic]:
    size = draft.vocab_size
    outside = [k for k, token in enumerate(tokens) if not 0 <= token < size]
    ascending = all(a < b for a, b in pairwise(offsets))
    absolute = len(offsets) > 1 and ascending and offsets[0] >= 0 and offsets[-1] < size
    if absolute and (outside or all(k == offset for k, offset in enumerate(offsets))):
        yield Diagnostic(
            "EA734",
            "d2t holds token ids where offsets belong",
            Severity.ERROR,
            expected="d2t[i] = token - i",
            found=f"d2t[{len(offsets) - 1}] = {offsets[-1]}, read as token {tokens[-1]} of {size}",
            where=d2t.name,
            consequence="draft token i becomes token i + d2t[i]: wrong tokens, and reads past the vocabulary",
            next_step="write d2t[i] - i",
        )
    elif outside:
        k = outside[0]
        yield Diagnostic(
            "EA730",
            f"d2t points outside the vocabulary {len(outside)} times",
            Severity.ERROR,
            expected=f"0 <= i + d2t[i] < {size}",
            found=f"d2t[{k}] = {offsets[k]}, token {tokens[k]}",
            where=d2t.name,
            consequence="the engine indexes past the logits: garbage tokens, or a crash on the GPU",
            next_step=_REMAKE,
        )
    elif draft.full_vocabulary and any(offsets):
        k = next(k for k, offset in enumerate(offsets) if offset)
        yield Diagnostic(
            "EA735",
            "the draft has the full vocabulary, and yet d2t moves tokens",
            Severity.ERROR,
            expected="offsets of 0, or no d2t",
            found=f"d2t[{k}] = {offsets[k]}",
            where=d2t.name,
            consequence="SGLang moves every token, vLLM ignores the map: at most one of them is right",
            next_step=_REMAKE,
        )
    elif not all(a < b for a, b in pairwise(tokens)):
        double = len(set(tokens)) < len(tokens)
        k = next(k for k in range(1, len(tokens)) if tokens[k] <= tokens[k - 1])
        yield Diagnostic(
            "EA731",
            "d2t maps two draft tokens to one token" if double else "d2t is not in the order of the target's tokens",
            Severity.ERROR if double else Severity.WARNING,
            expected="i + d2t[i] strictly increasing",
            found=f"tokens {tokens[k - 1]}, {tokens[k]} at {k - 1}, {k}",
            where=d2t.name,
            consequence="some tokens can never be drafted, and the head's rows may belong to other tokens",
            next_step=_REMAKE,
        )


def _mask(draft: DraftSpec, t2d: TensorInfo, mask: Sequence[int], tokens: Sequence[int]) -> Iterator[Diagnostic]:
    chosen = sum(1 for flag in mask if flag)
    lost = [token for token in tokens if token < len(mask) and not mask[token]]
    if len(mask) == draft.vocab_size and chosen == len(tokens) and not lost:
        return
    if len(mask) != draft.vocab_size:
        found = f"t2d has {len(mask)} entries"
    elif lost:
        found = f"{len(lost)} of the mapped tokens are not in t2d, the first is {lost[0]}"
    else:
        found = f"t2d names {chosen} tokens"
    yield Diagnostic(
        "EA732",
        "d2t and t2d describe different draft vocabularies",
        Severity.ERROR,
        expected=f"t2d [{draft.vocab_size}], true at exactly the {len(tokens)} tokens of d2t",
        found=found,
        where=f"d2t, {t2d.name}",
        consequence="one of them was made from other data than the head: its rows stand for other tokens, and "
        "acceptance collapses although training looked fine",
        next_step=_REMAKE,
    )


def _no_map(draft: DraftSpec) -> Diagnostic:
    beside = ", ".join(path.name for path in draft.side_files)
    return Diagnostic(
        "EA733",
        f"the draft has {draft.draft_vocab_size} of {draft.vocab_size} tokens but no d2t",
        Severity.ERROR,
        expected=f"a tensor d2t of {draft.draft_vocab_size} offsets",
        found=f"no d2t; beside the weights: {beside}" if beside else "no d2t",
        where="d2t",
        consequence="draft token i is taken for token i: almost nothing is accepted",
        next_step="write the map of the side file into the weights as d2t" if beside else "export the draft with d2t",
    )


def _head(draft: DraftSpec) -> Iterator[Diagnostic]:
    head = draft.tensors.get("lm_head.weight")
    if head is not None and head.shape[:1] != (draft.draft_vocab_size,):
        yield Diagnostic(
            "EA737",
            "the head does not have one row for each token of the draft vocabulary",
            Severity.ERROR,
            expected=f"[{draft.draft_vocab_size}, {draft.hidden_size}]",
            found=str(list(head.shape)),
            where=head.name,
            consequence="the engine stops while loading the draft",
            next_step="correct draft_vocab_size in config.json",
        )
    elif draft.head is Weights.TIED and not draft.full_vocabulary:
        yield Diagnostic(
            "EA737",
            "the head is tied to the embedding, but the draft vocabulary is smaller",
            Severity.ERROR,
            expected="an own lm_head.weight, or the full vocabulary",
            found=f"tie_word_embeddings true, draft_vocab_size {draft.draft_vocab_size} of {draft.vocab_size}",
            where="tie_word_embeddings",
            consequence="the logits are those of the embedding, and d2t maps them to wrong tokens",
            next_step="set tie_word_embeddings to false and export lm_head.weight",
        )
    elif draft.head is Weights.TARGET and not draft.full_vocabulary:
        yield Diagnostic(
            "EA737",
            "the draft has a reduced vocabulary and no head",
            Severity.ERROR,
            expected=f"lm_head.weight [{draft.draft_vocab_size}, {draft.hidden_size}]",
            found="no lm_head.weight",
            where="lm_head.weight",
            consequence="SGLang drafts with a random head, vLLM shares a head of another size",
            next_step="export the draft with its head",
        )


def _sizes(pair: Pair) -> Iterator[Diagnostic]:
    draft, target = pair.draft, pair.target
    if target.vocab_size is not None and draft.vocab_size != target.vocab_size:
        small = draft.vocab_size < target.vocab_size
        yield Diagnostic(
            "EA736",
            "the draft was made for another vocabulary",
            Severity.ERROR if small else Severity.WARNING,
            expected=f"{target.vocab_size} (the target's vocab_size)",
            found=str(draft.vocab_size),
            where="vocab_size",
            consequence="tokens of the target lie outside the draft's embedding"
            if small
            else "the shared embedding has fewer rows than the draft expects",
            next_step="use a draft for this target and tokenizer",
        )
    elif target.tokenizer_size is not None and target.tokenizer_size > draft.vocab_size:
        yield Diagnostic(
            "EA736",
            "the tokenizer has tokens that the draft's embedding lacks",
            Severity.ERROR,
            expected=f"at most {draft.vocab_size} tokens",
            found=f"{target.tokenizer_size} tokens",
            where="tokenizer.json",
            consequence="such a token indexes past the embedding: a crash on the GPU",
            next_step="use the tokenizer that belongs to target and draft",
        )


def _media(pair: Pair) -> Iterator[Diagnostic]:
    embedding = pair.draft.tensors.get("embed_tokens.weight")
    rows = embedding.shape[0] if embedding is not None and embedding.shape else pair.draft.vocab_size
    over = {path: token for path, token in pair.target.media_tokens.items() if token >= rows}
    if over:
        yield Diagnostic(
            "EA738",
            "token ids of images, video or audio lie outside the draft's embedding",
            Severity.ERROR,
            expected=f"ids below {rows}",
            found=", ".join(f"{path} {token}" for path, token in over.items()),
            where=", ".join(over),
            consequence="the first request with an image indexes past the embedding: a crash on the GPU",
            next_step="serve text only, or use a draft whose embedding covers these ids",
        )
