"""What SGLang asks of an EAGLE-3 target, by version range (read in the released wheels)."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from eagle_adapters.contract.hooks import Call, Contract, Engine, Hook, Kind

_SETUP = "sglang 0.5.23, srt/model_executor/model_runner_components/attention_backend_setup.py"
_EMBED = "sglang 0.5.23, srt/speculative/pp_draft_embedding.py"
_WORKER = "sglang 0.5.23, srt/speculative/eagle_worker_v2.py"


def _hooks(set_calls: tuple[Call, ...]) -> tuple[Hook, ...]:
    return (
        Hook(
            "set_eagle3_layers_to_capture",
            Kind.METHOD,
            "(self, layer_ids: list[int] | None = None) -> None",
            _SETUP,
            "after the weights are loaded, before graphs are captured; only on the top-level class",
            "nothing; afterwards forward hands the captured states to the logits processor",
            set_calls,
        ),
        Hook(
            "get_embed_and_head",
            Kind.METHOD,
            "(self) -> tuple[Tensor, Tensor]",
            _EMBED,
            "first of all, when the draft is loaded",
            "the embedding and head weights, each [padded vocab, hidden]",
            (Call(),),
        ),
        Hook(
            "set_embed_and_head",
            Kind.METHOD,
            "(self, embed: Tensor, head: Tensor) -> None",
            _WORKER,
            "when weights are updated",
            "nothing",
            (Call(2),),
            required=False,
        ),
        Hook(
            "lm_head",
            Kind.ATTRIBUTE,
            "Module",
            _WORKER,
            "when the draft shares the head",
            "the output head",
            required=False,
        ),
        Hook(
            "get_input_embeddings",
            Kind.METHOD,
            "(self) -> Module",
            "sglang 0.5.23, srt/managers/mm_utils.py",
            "at each multimodal forward",
            "the token embedding module",
            (Call(),),
            required=False,
        ),
        Hook(
            "capture_aux_hidden_states",
            Kind.ATTRIBUTE,
            "bool",
            "sglang 0.5.23, context-parallel paths",
            "at forward, on the outer model",
            "whether states are captured",
            required=False,
        ),
    )


CONTRACTS = (
    # Up to 0.5.9 the CUDA-graph runner called the setter without arguments as well.
    Contract(Engine.SGLANG, SpecifierSet(">=0.5.3,<0.5.11"), _hooks((Call(), Call(1)))),
    Contract(Engine.SGLANG, SpecifierSet(">=0.5.11,<0.6"), _hooks((Call(1),))),
)
