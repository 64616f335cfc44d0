"""An SGLang plug-in for tests: writes down the states that the engine hands to the draft, and changes nothing.

Active only where `EAGLE_ADAPTERS_OBSERVE` names a folder. It stands around the two methods of the draft worker that
receive the target's states (sglang 0.5.23, srt/speculative/eagle_worker_v2.py, `EagleDraftWorker`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

FOLDER_ENV = "EAGLE_ADAPTERS_OBSERVE"


def register() -> None:
    """Entry point of the group `sglang.srt.plugins`."""
    if FOLDER_ENV in os.environ:
        from eagle_adapters.backends.imports import after_import

        after_import("sglang.srt.speculative.eagle_worker_v2", _watch)


def _watch(module: Any) -> None:
    worker = module.EagleDraftWorker
    prefill, decode = worker._draft_extend_for_prefill, worker._draft_extend_for_decode

    def watched_prefill(self: Any, batch: Any, states: Any, *args: Any, **kwargs: Any) -> Any:
        lengths = [int(n) for n in batch.extend_lens]
        starts = [int(total) - n for total, n in zip(batch.seq_lens.tolist(), lengths, strict=True)]
        _write(batch, states, starts, lengths, sum(lengths) // max(1, len(lengths)), packed=True)
        return prefill(self, batch, states, *args, **kwargs)

    def watched_decode(self: Any, batch: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
        width = self.speculative_num_draft_tokens
        starts = [int(n) for n in batch.seq_lens.tolist()]
        accepted = [int(n) for n in result.accept_lens.tolist()]
        _write(batch, result.logits_output.hidden_states, starts, accepted, width, packed=False)
        return decode(self, batch, result, *args, **kwargs)

    worker._draft_extend_for_prefill = watched_prefill
    worker._draft_extend_for_decode = watched_decode


_written = [0]


def _write(batch: Any, states: Any, starts: list[int], lengths: list[int], width: int, *, packed: bool) -> None:
    """One file for each request of the batch: its prompt, its first position, and its rows of states.

    Every rank of a tensor-parallel engine has a folder of its own.
    """
    import torch
    from safetensors.torch import save_file

    folder = Path(os.environ[FOLDER_ENV]) / str(os.getpid())
    folder.mkdir(exist_ok=True)
    at = 0
    for request, start, length in zip(batch.reqs, starts, lengths, strict=True):
        rows = states[at : at + length].detach().to("cpu", torch.float32).contiguous()
        at += length if packed else width
        _written[0] += 1
        path = folder / f"{_written[0]:06d}.safetensors"
        # The other list of ids holds hashes of a picture's content in the places of the picture.
        prompt = torch.tensor(list(request.origin_input_ids_unpadded), dtype=torch.int64)
        part = path.with_suffix(".part")
        save_file({"prompt": prompt, "start": torch.tensor([start]), "states": rows.clone()}, part)
        part.replace(path)
