"""Bookkeeping of cache slots and tokens around a speculative step."""

from __future__ import annotations

import ctypes

import torch


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    """Write each request's new slots into its row of `req_to_token`."""
    at = 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        req_to_token[row, start:end] = out_cache_loc[at : at + end - start].to(req_to_token.dtype)
        at += end - start


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len):
    """Read each request's slots out of its row of `req_to_token`: the reverse of the assignment above."""
    at = 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        out_cache_loc[at : at + end - start] = req_to_token[row, start:end].to(out_cache_loc.dtype)
        at += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, num_steps
):
    """The slots that follow each sequence, topk * num_steps of them."""
    out = out_cache_loc.view(-1, topk * num_steps)
    for i, (row, start) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        out[i] = req_to_token[row, start : start + topk * num_steps].to(out.dtype)


def build_draft_decode_metadata_cpu(req_to_token, req_pool_indices, seq_lens, topk, num_steps, pool_len):
    """One slot table per branch: the shared prefix, then the branch's own steps."""
    tables = torch.zeros(len(req_pool_indices) * topk, pool_len, dtype=req_to_token.dtype)
    for i, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=True)):
        for branch in range(topk):
            table = tables[i * topk + branch]
            table[:length] = req_to_token[row, :length]
            start = length + branch * num_steps
            table[length : length + num_steps] = req_to_token[row, start : start + num_steps]
    return tables


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, accept_stride):
    """The last accepted token of each request."""
    rows = torch.arange(accept_lens.shape[0])
    bonus_tokens.copy_(accept_tokens.reshape(-1)[rows * accept_stride + accept_lens.long() - 1])


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc, size=None):
    """The slots of the accepted tokens, in order; -1 marks a rejected place."""
    places = accept_index.reshape(-1).long()[:size]
    places = places[places >= 0]
    accept_out_cache_loc[: places.numel()] = out_cache_loc[places]


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    """Copy cache rows src -> tgt in every layer's buffer, given as raw addresses and byte strides."""
    for base, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(base + place * stride, stride) for place in src_loc.tolist()]
        for place, row in zip(tgt_loc.tolist(), rows, strict=True):
            ctypes.memmove(base + place * stride, row, stride)


def rotate_input_ids_cpu(input_ids, extend_start_loc, extend_seq_lens, topk_index, select_index=None):
    """Shift each request's tokens one to the left and put the newly sampled token at its end."""
    new = topk_index.reshape(-1)
    for i, (start, length) in enumerate(zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)):
        if length == 0:
            continue
        input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        last = start + length - 1 if select_index is None else int(select_index[i])
        input_ids[last] = new[i].to(input_ids.dtype)


def _spans(rows, starts, ends):
    return zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)
