"""How one engine release reads a draft: which ids it takes, what they mean to it, and what it ignores.

Facts of vllm 0.32.0 and sglang 0.5.23; the file is named at each.
"""

from __future__ import annotations

from dataclasses import dataclass

from eagle_adapters.boundaries import Boundary, Convention, default_boundaries, to_boundaries
from eagle_adapters.drafts.reader import IDS
from eagle_adapters.drafts.spec import Claim, DraftSpec, Format
from eagle_adapters.drafts.target import TargetSpec
from eagle_adapters.errors import BoundaryError

VLLM = "vllm"
SGLANG = "sglang"
RELEASES = {VLLM: "vLLM 0.32.0", SGLANG: "SGLang 0.5.23"}
"""The releases whose sources these facts were read in."""

_FIRST_IS_ONE = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "MistralLarge3ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "Glm4MoeLiteForCausalLM",
)
"""Classes whose setter shifts only when the first id is 1 (sglang 0.5.23, models/deepseek_v2.py, glm4_moe_lite.py)."""

_UNLESS_LAST = ("GptOssForCausalLM",)
"""(sglang 0.5.23, models/gpt_oss.py)"""

_SGLANG_LAST = (
    "GptOssForCausalLM",
    "MiniMaxM3SparseForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration",
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "Gemma4ForCausalLM",
    "Gemma4ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
)
"""Classes that can capture boundary N natively in sglang 0.5.23."""

_VLLM_NOT_FIRST = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "GlmMoeDsaForCausalLM",
)
"""Classes that fail on boundary 0 (vllm 0.32.0, models/deepseek_v2.py)."""

_VLLM_NOT_LAST = ("DeepseekV32ForCausalLM",)
"""Classes that leave boundary N out silently (vllm 0.32.0, models/deepseek_v32.py)."""

DRAFT_CLASSES = {
    VLLM: frozenset(
        {
            "Eagle3LlamaForCausalLM",
            "Eagle3MiniMaxM2ForCausalLM",
            "LlamaForCausalLMEagle3",
            "Eagle3Qwen2_5vlForCausalLM",
            "Eagle3Qwen3vlForCausalLM",
            "Eagle3Qwen3ForCausalLM",
            "Eagle3DeepseekV2ForCausalLM",
            "Eagle3DeepseekV3ForCausalLM",
            # vLLM puts `Eagle3` before these (transformers_utils/configs/eagle.py)
            "LlamaForCausalLM",
            "Qwen3ForCausalLM",
            "DeepseekV2ForCausalLM",
            "DeepseekV3ForCausalLM",
        }
    ),
    SGLANG: frozenset({"LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM"}),
}
"""The draft classes of each engine (vllm models/registry.py, sglang models/*_eagle3.py)."""


@dataclass(frozen=True, slots=True)
class EngineView:
    """What one runner of an engine makes of a draft.

    Attributes:
        engine: `vllm` or `sglang`.
        runner: the model runner, or the release where there is one only.
        ids: the ids it takes, with the field, or None when it uses its default.
        convention: what the ids mean to it.
        boundaries: what it would capture, in the order of `fc`; None when it would stop on the ids.
        num_aux: the states for which it builds `fc`.
    """

    engine: str
    runner: str
    ids: Claim | None
    convention: Convention
    boundaries: tuple[Boundary, ...] | None
    num_aux: int


def views(engine: str, draft: DraftSpec, target: TargetSpec) -> tuple[EngineView, ...]:
    """What every runner of `engine` makes of the draft: vLLM has two, SGLang one."""
    if engine == SGLANG:
        return (_sglang(draft, target),)
    return (_vllm(draft, target, "V2 runner (GPU)", v2=True), _vllm(draft, target, "V1 runner (CPU)", v2=False))


def sglang_convention(target: TargetSpec) -> Convention:
    """What SGLang's class for this target takes explicit ids to mean."""
    if any(name in _FIRST_IS_ONE for name in target.engine_names):
        return Convention.FIRST_IS_ONE
    if any(name in _UNLESS_LAST for name in target.engine_names):
        return Convention.UNLESS_LAST
    return Convention.LAYER_OUTPUT


def unreachable(engine: str, target: TargetSpec, boundary: int) -> str | None:
    """Why the engine's own class for this target cannot capture `boundary`, or None when it can."""
    names = target.engine_names
    if engine == SGLANG and boundary == target.num_layers and not any(name in _SGLANG_LAST for name in names):
        return f"{RELEASES[engine]} records layers before they run, so the last output is never recorded"
    if engine == VLLM and boundary == 0 and any(name in _VLLM_NOT_FIRST for name in names):
        return f"{RELEASES[engine]} adds a residual that does not exist yet"
    if engine == VLLM and boundary == target.num_layers and any(name in _VLLM_NOT_LAST for name in names):
        return f"{RELEASES[engine]} records layers before they run, so the last output is never recorded"
    return None


def _vllm(draft: DraftSpec, target: TargetSpec, runner: str, *, v2: bool) -> EngineView:
    """Vllm 0.32.0: v1/worker/gpu_model_runner.py:5251, v1/worker/gpu/spec_decode/eagle/eagle3_utils.py:100."""
    inner = "transformer_layer_config." if draft.nested else ""
    # A speculators config becomes its layer config with the top-level ids copied in (configs/speculators/algos.py).
    places = [IDS, inner + IDS]
    places.append(f"{inner}eagle_config.layer_ids" if v2 else f"{inner}eagle_config.{IDS}")
    ids = _claim(draft, places)
    nested = _claim(draft, [f"{inner}eagle_config.{IDS}"])
    boundaries = None if ids is None else _convert(sorted(set(ids.value)), Convention.BOUNDARY, target)
    return EngineView(
        VLLM,
        runner,
        ids,
        Convention.BOUNDARY,
        _defaults(target) if ids is None else boundaries,
        _num_aux(draft, nested, draft.config),
    )


def _sglang(draft: DraftSpec, target: TargetSpec) -> EngineView:
    """Sglang 0.5.23: model_runner_components/spec_aux_hidden_state.py:185, models/llama_eagle3.py."""
    ids = _claim(draft, [f"eagle_config.{IDS}"])
    convention = sglang_convention(target)
    width = ids or (_claim(draft, [IDS]) if draft.latent else None)
    shift = 1 if any(name.startswith("MiniMaxM3") and "Conditional" in name for name in target.engine_names) else 0
    boundaries = _defaults(target, shift) if ids is None else _convert(ids.value, convention, target)
    return EngineView(SGLANG, RELEASES[SGLANG], ids, convention, boundaries, _num_aux(draft, width, draft.document))


def _claim(draft: DraftSpec, places: list[str]) -> Claim | None:
    return next((claim for place in places for claim in draft.id_claims if claim.where == place), None)


def _num_aux(draft: DraftSpec, ids: Claim | None, config: object) -> int:
    stated = config.get("num_aux_hidden_states") if isinstance(config, dict) else None
    if isinstance(stated, int):
        return stated
    return len(ids.value) if ids is not None else 3


def _convert(ids: list[int], convention: Convention, target: TargetSpec) -> tuple[Boundary, ...] | None:
    try:
        return to_boundaries(ids, convention, target.num_layers)
    except BoundaryError:
        return None


def _defaults(target: TargetSpec, shift: int = 0) -> tuple[Boundary, ...] | None:
    try:
        return tuple(Boundary(b + shift) for b in default_boundaries(target.num_layers))
    except BoundaryError:
        return None


def knows_class(engine: str, draft: DraftSpec) -> bool:
    """Whether the engine has a class for this draft."""
    if engine == VLLM and draft.format is Format.SPECULATORS:
        return draft.model_type in (None, "llama", "qwen3")
    return any(name in DRAFT_CLASSES[engine] for name in draft.architectures)
