"""What vLLM asks of an EAGLE-3 target, by version range (read in the released wheels)."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from eagle_adapters.contract.hooks import Call, Contract, Engine, Hook, Kind

_PROTOCOL = "vllm 0.32.0, model_executor/models/interfaces.py: supports_eagle3"
_V1 = "vllm 0.32.0, v1/worker/gpu_model_runner.py"
_V2 = "vllm 0.32.0, v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"

_SUPPORTS = Hook(
    "supports_eagle3", Kind.ATTRIBUTE, "ClassVar[bool]", _PROTOCOL, "before capture is switched on", "True"
)
_SET = Hook(
    "set_aux_hidden_state_layers",
    Kind.METHOD,
    "(self, layers: tuple[int, ...]) -> None",
    f"{_V1}; {_V2}",
    "once, after the weights are loaded and before the first forward",
    "nothing; afterwards forward returns (hidden_states, list of states at these boundaries, ascending)",
    (Call(1),),
)
_OWN = (
    Hook("has_own_lm_head", Kind.ATTRIBUTE, "bool", _PROTOCOL, "before capture is switched on", "False for a target"),
    Hook(
        "has_own_embed_tokens", Kind.ATTRIBUTE, "bool", _PROTOCOL, "before capture is switched on", "False for a target"
    ),
)
_DEFAULT = Hook(
    "get_eagle3_default_aux_hidden_state_layers",
    Kind.METHOD,
    "(self) -> tuple[int, ...]",
    f"{_V1}; {_V2}",
    "when the draft config names no ids",
    "the default boundaries (2, N // 2, N - 3)",
    (Call(),),
)
_IMAGE_TOKEN = Hook(
    "image_token_index",
    Kind.CONFIG,
    "int",
    "vllm 0.32.0, v1/spec_decode/llm_base_proposer.py",
    "when the draft is loaded on the V1 runner, for a multimodal class outside its own list",
    "the id of the image placeholder token",
    required=False,
)
_DEAD = Hook(
    "get_eagle3_aux_hidden_state_layers",
    Kind.DEAD,
    "(self) -> tuple[int, ...]",
    "nobody since vllm 0.20",
    "never",
    "renamed",
    instead="get_eagle3_default_aux_hidden_state_layers",
)
_OLD_DEFAULT = Hook(
    "get_eagle3_aux_hidden_state_layers",
    Kind.METHOD,
    "(self) -> tuple[int, ...]",
    "vllm 0.11.2 to 0.16.0, v1/worker/gpu_model_runner.py",
    "when the draft config names no ids",
    "the default boundaries",
    (Call(),),
)

CONTRACTS = (
    Contract(Engine.VLLM, SpecifierSet(">=0.11,<0.20"), (_SUPPORTS, _SET, _OLD_DEFAULT)),
    Contract(Engine.VLLM, SpecifierSet(">=0.20,<0.26"), (_SUPPORTS, _SET, _DEFAULT, _DEAD, _IMAGE_TOKEN)),
    Contract(Engine.VLLM, SpecifierSet(">=0.26,<0.33"), (_SUPPORTS, *_OWN, _SET, _DEFAULT, _DEAD, _IMAGE_TOKEN)),
)
