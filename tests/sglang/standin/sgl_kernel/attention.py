"""Paged attention of SGLang's CPU backend (`intel_amx`), one request at a time, in float32."""

from __future__ import annotations

import torch

_LIBRARY = torch.library.Library("sgl_kernel", "FRAGMENT")

_EXTEND = (
    "extend_attention_cpu(Tensor q_extend, Tensor? k_extend, Tensor? v_extend, Tensor(a!) o_extend,"
    " Tensor k_buffer, Tensor v_buffer, float k_scale, float v_scale, Tensor req_to_token, Tensor req_pool_indices,"
    " Tensor seq_lens, Tensor extend_seq_lens, Tensor extend_start_loc, int max_len_extend, float sm_scale,"
    " float logit_cap, bool is_cross_attn, int sliding_window_size, Tensor? encoder_lens, Tensor? sinks,"
    " Tensor? tree_mask, bool is_causal) -> ()"
)
_DECODE = (
    "decode_attention_cpu(Tensor query, Tensor(b!) k_cache, Tensor(c!) v_cache, float k_scale, float v_scale,"
    " Tensor(a!) output, Tensor? key, Tensor? value, Tensor? loc, Tensor attn_logits, Tensor req_to_token,"
    " Tensor req_pool_indices, Tensor seq_lens, float sm_scale, float logit_cap, bool is_cross_attn,"
    " int sliding_window_size, Tensor? encoder_lens, Tensor? sinks) -> ()"
)


def define_ops() -> None:
    """Register `torch.ops.sgl_kernel.{extend,decode}_attention_cpu`."""
    for schema, function in ((_EXTEND, _extend), (_DECODE, _decode)):
        _LIBRARY.define(schema)
        _LIBRARY.impl(schema.split("(")[0], function, "CompositeExplicitAutograd")


def _attend(q, k, v, scale, cap, visible, sinks=None):
    """Attention of q [Q, H, D] over k [K, G, D], v [K, G, E], where `visible` [Q, K] is true; [Q, H, E]."""
    repeat = q.shape[1] // k.shape[1]
    keys = k.float().repeat_interleave(repeat, dim=1)
    values = v.float().repeat_interleave(repeat, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    if cap > 0:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        sink = sinks.float().view(-1, 1, 1).expand(-1, scores.shape[1], 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return torch.einsum("hqk,khe->qhe", weights, values)


def _extend(
    q, k_new, v_new, out, k_cache, v_cache, k_scale, v_scale, req_to_token, req_pool_indices, seq_lens,
    extend_seq_lens, extend_start_loc, max_len_extend, sm_scale, logit_cap, is_cross_attn, sliding_window,
    encoder_lens, sinks, tree_mask, is_causal,
):  # fmt: skip
    if is_cross_attn:
        raise NotImplementedError("sgl_kernel test stand-in: cross attention")
    if k_new is not None:
        k_new = k_new.reshape(k_new.shape[0], -1, q.shape[-1])
        v_new = v_new.reshape(v_new.shape[0], -1, out.shape[-1])
    for i, (total, new) in enumerate(zip(seq_lens.tolist(), extend_seq_lens.tolist(), strict=True)):
        if new == 0:
            continue
        start, prefix = int(extend_start_loc[i]), total - new
        slots = req_to_token[int(req_pool_indices[i]), :total].long()
        rows = slice(start, start + new)
        if k_new is None:
            k, v = k_cache[slots], v_cache[slots]
        elif prefix == 0:  # MLA keeps one head in the cache and hands over many: they never meet here
            k, v = k_new[rows], v_new[rows]
        else:
            old = slots[:prefix]
            k = torch.cat([k_cache[old].to(k_new.dtype), k_new[rows]])
            v = torch.cat([v_cache[old].to(v_new.dtype), v_new[rows]])
        visible = _visible(prefix, total, is_causal, sliding_window)
        if tree_mask is not None:
            # One [new, new] block per request; the committed prefix is always visible.
            block = tree_mask.view(-1)[i * new * new : (i + 1) * new * new].view(new, new)
            visible[:, prefix:] = block
        out[rows] = _attend(q[rows], k, v, sm_scale, logit_cap, visible, sinks).to(out.dtype)


def _visible(prefix: int, total: int, is_causal: bool, sliding_window: int) -> torch.Tensor:
    queries = torch.arange(prefix, total).unsqueeze(1)
    keys = torch.arange(total).unsqueeze(0)
    visible = keys <= queries if is_causal else torch.ones(total - prefix, total, dtype=torch.bool)
    return visible & (keys >= queries - sliding_window) if sliding_window > 0 else visible


def _decode(
    q, k_cache, v_cache, k_scale, v_scale, out, k_new, v_new, loc, attn_logits, req_to_token, req_pool_indices,
    seq_lens, sm_scale, logit_cap, is_cross_attn, sliding_window, encoder_lens, sinks,
):  # fmt: skip
    if is_cross_attn:
        raise NotImplementedError("sgl_kernel test stand-in: cross attention")
    if k_new is not None:
        loc = loc.long()
        k_cache[loc] = k_new.reshape(-1, *k_cache.shape[1:]).to(k_cache.dtype)
        if v_cache.data_ptr() != k_cache.data_ptr():  # MLA keeps the value as a view of the key
            v_cache[loc] = v_new.reshape(-1, *v_cache.shape[1:]).to(v_cache.dtype)
    for i, total in enumerate(seq_lens.tolist()):
        if total == 0:
            out[i].zero_()
            continue
        low = max(0, total - 1 - sliding_window) if sliding_window > 0 else 0
        slots = req_to_token[int(req_pool_indices[i]), low:total].long()
        visible = torch.ones(1, total - low, dtype=torch.bool)
        out[i] = _attend(q[i : i + 1], k_cache[slots], v_cache[slots], sm_scale, logit_cap, visible, sinks)[0].to(
            out.dtype
        )
