"""The target classes that have a complete EAGLE-3 interface in the engines' own releases, as their sources say.

Read with `ast`, by inheritance, from the class tables of vllm 0.32.0 (`SupportsEagle3`, without the classes whose claim
is broken: Exaone4.5, CohereCompass, MiMo) and sglang 0.5.23 (`set_eagle3_layers_to_capture` and `get_embed_and_head`).
Platform-specific vLLM classes (`vllm/models/`) are left out: which file they resolve to depends on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping

_VLLM = """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM Cohere2MoeForCausalLM Cosmos3ForConditionalGeneration
    CwmForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM Emu3ForConditionalGeneration
    Ernie4_5ForCausalLM FlexOlmoForCausalLM GPTBigCodeForCausalLM GPTNeoXForCausalLM Gemma4ForCausalLM
    Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration GlmForCausalLM GlmMoeDsaForCausalLM
    GptOssForCausalLM GraniteForCausalLM GraniteSWAForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM
    HunYuanVLForConditionalGeneration IQuestCoderForCausalLM InternLM3ForCausalLM
    InternS1ProForConditionalGeneration InternS2MobiusForConditionalGeneration
    InternS2PreviewForConditionalGeneration Jais2ForCausalLM K2HorizonForCausalLM
    KimiK25ForConditionalGeneration LLaMAForCausalLM LagunaForCausalLM LightOnOCRForConditionalGeneration
    Llama4ForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM LlavaForConditionalGeneration
    MellumForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiMoV2OmniForCausalLM MiniCPM3ForCausalLM
    MiniCPMForCausalLM MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
    MiniMaxM2ForCausalLM Ministral3ForCausalLM Mistral3ForConditionalGeneration MistralForCausalLM
    MistralLarge3ForCausalLM MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration NanbeigeForCausalLM
    NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2
    NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 Olmo2ForCausalLM Olmo3ForCausalLM
    OlmoForCausalLM OpenCUAForConditionalGeneration Phi3ForCausalLM PhiForCausalLM
    PixtralForConditionalGeneration Plamo3ForCausalLM Qwen2ForCausalLM Qwen2_5_VLForConditionalGeneration
    Qwen3ASRForConditionalGeneration Qwen3ASRRealtimeGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM
    Qwen3NextForCausalLM Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration
    Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM
    Qwen3_5MoeForConditionalGeneration SarvamMLAForCausalLM SeedOssForCausalLM SmolLM3ForCausalLM
    Starcoder2ForCausalLM Step1ForCausalLM TeleChat2ForCausalLM TeleChat3ForCausalLM TeleFLMForCausalLM
    VaultGemmaForCausalLM VibeVoiceAsrForConditionalGeneration
"""

_SGLANG = """
    ApertusForCausalLM BailingMoEForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM
    Cosmos3ForConditionalGeneration DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM
    ExaoneMoEForCausalLM ExaoneMoeForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma4ForCausalLM
    Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration Glm4MoeForCausalLM
    Glm4MoeLiteForCausalLM Glm5NextForConditionalGeneration GlmMoeDsaForCausalLM GptOssForCausalLM
    IQuestCoderForCausalLM InternLM3ForCausalLM InternS1ProForConditionalGeneration
    InternS2MobiusForConditionalGeneration InternS2PreviewForConditionalGeneration
    KimiK25ForConditionalGeneration Llama4ForCausalLM Llama4ForConditionalGeneration LlamaForCausalLM
    LongcatFlashForCausalLM MellumForCausalLM MiniMaxM2ForCausalLM MiniMaxM3SparseForCausalLM
    MiniMaxM3SparseForConditionalGeneration Ministral3ForCausalLM MistralForCausalLM MistralLarge3ForCausalLM
    Phi3ForCausalLM Qwen2ForCausalLM Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM
    Qwen3NextForCausalLM Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
    Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration
    SarvamMoEForCausalLM TeleFLMForCausalLM
"""

NATIVE: Mapping[str, frozenset[str]] = {"vllm": frozenset(_VLLM.split()), "sglang": frozenset(_SGLANG.split())}
"""Engine -> architectures."""
