"""Sees what the engine hands to its drafter, without touching the way there.

vLLM mixes `Observer` into its worker class (`worker_extension_cls`), in every worker process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

EXTENSION = "eagle_adapters.verify.vllm.observer.Observer"
"""The value for vLLM's `worker_extension_cls`."""


class Observer:
    """Worker methods, called through `collective_rpc` by name."""

    def observe(self, folder: str) -> bool:
        """Write every hand-over to the drafter into `folder` from now on; false when this worker has no drafter.

        One file for each request of the batch: rank, count of the hand-over, number of the request.
        """
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        drafter = getattr(runner, "drafter", None)
        propose = getattr(drafter, "propose", None)
        if propose is None:
            return False
        rank = int(self.rank)  # type: ignore[attr-defined]
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        count = 0

        def observed(*args: Any, **parts: Any) -> Any:
            nonlocal count
            from safetensors.torch import save_file

            starts = parts["common_attn_metadata"].query_start_loc_cpu.tolist()
            for request, start, end in zip(runner.input_batch.req_ids, starts, starts[1:], strict=False):
                save_file(
                    {
                        "tokens": parts["target_token_ids"][start:end].clone(),
                        "positions": parts["target_positions"][..., start:end].clone(),
                        "states": parts["target_hidden_states"][start:end].clone(),
                    },
                    target / f"rank{rank}-{count:05d}-{request.partition('-')[0]}.safetensors",
                )
            count += 1
            return propose(*args, **parts)

        drafter.propose = observed  # type: ignore[union-attr]
        return True

    def adapted(self) -> dict[str, Any]:
        """What was done in this worker: `module:Class.name` of every edit, and the layers set on the decoder."""
        from eagle_adapters.apply import _ledger

        model = self.model_runner.get_model()  # type: ignore[attr-defined]
        layers = [
            list(map(int, module.aux_hidden_state_layers))
            for module in model.modules()
            if getattr(module, "aux_hidden_state_layers", None)
        ]
        return {
            "target": f"{type(model).__module__}:{type(model).__qualname__}",
            "edits": sorted(f"{owner.__module__}:{owner.__qualname__}.{name}" for owner, name in _ledger),
            "layers": layers,
        }
