"""Draft trees: linking the picked candidates, and walking the tree along the target's greedy choices."""

from __future__ import annotations

import torch


def build_tree_kernel_efficient_cpu(
    parent_list, selected_index, verified_seq_len, tree_mask, positions, retrive_index, retrive_next_token,
    retrive_next_sibling, topk, depth, draft_token_num, tree_mask_mode,
):  # fmt: skip
    """Fill mask, positions and child / sibling links, in place.

    Node 0 is the verified token, node i > 0 the pick i - 1. A pick's parent is node 0 when it comes from the first
    row of candidates, else the pick whose candidate number its row's parent entry names.
    """
    mode = int(tree_mask_mode)
    if mode not in (0, 1):
        raise NotImplementedError("sgl_kernel test stand-in: bit-packed tree mask")
    size = draft_token_num
    flat, at = tree_mask.view(-1), 0
    for b in range(parent_list.shape[0]):
        length = int(verified_seq_len[b])
        parents = _parents(selected_index[b].tolist(), parent_list[b].tolist(), topk, size)
        child, sibling = [-1] * size, [-1] * size
        for node in range(size - 1, 0, -1):
            if parents[node] is not None:
                sibling[node], child[parents[node]] = child[parents[node]], node
        visible = torch.zeros(size, size, dtype=torch.bool)
        visible[:, 0] = True
        place = positions.view(-1, size)[b]
        for node in range(size):
            depth_of, ancestor = 0, node
            while ancestor:
                visible[node, ancestor] = True
                depth_of, ancestor = depth_of + 1, parents[ancestor]
            place[node] = length + depth_of
        retrive_index[b] = torch.arange(b * size, (b + 1) * size, dtype=retrive_index.dtype)
        retrive_next_token[b] = torch.tensor(child, dtype=retrive_next_token.dtype)
        retrive_next_sibling[b] = torch.tensor(sibling, dtype=retrive_next_sibling.dtype)
        if mode == 1:
            flat[b * size * size : (b + 1) * size * size] = visible.view(-1)
        else:
            flat[at : at + size * (length + size)].view(size, length + size)[:, length:] = visible
            at += size * (length + size)


def _parents(picks: list[int], table: list[int], topk: int, size: int) -> list[int | None]:
    parents: list[int | None] = [None] * size
    for node in range(1, size):
        row = picks[node - 1] // topk
        if row == 0:
            parents[node] = 0
        elif table[row] in picks:
            parents[node] = picks.index(table[row]) + 1
    return parents


def verify_tree_greedy_cpu(
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling,
    target_predict,
):  # fmt: skip
    """Follow the tree from its root while a child carries the token that the target chose; in place."""
    chosen = target_predict.reshape(-1).tolist()
    rows, steps = accept_index.shape
    for b in range(rows):
        tokens, flat = candidates[b].tolist(), retrive_index[b].tolist()
        child, sibling = retrive_next_token[b].tolist(), retrive_next_sibling[b].tolist()
        node, path = 0, [flat[0]]
        while len(path) < steps:
            node = child[node]
            while node != -1 and tokens[node] != chosen[path[-1]]:
                node = sibling[node]
            if node == -1:
                break
            predicts[path[-1]] = chosen[path[-1]]
            path.append(flat[node])
        predicts[path[-1]] = chosen[path[-1]]
        accept_index[b, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[b] = len(path) - 1
