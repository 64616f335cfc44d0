"""`wrap` on SGLang's own classes, without an engine: complete afterwards, and as before once unwrapped."""

from __future__ import annotations

import importlib
import sys

import pytest
from sglang_cases import HERE

import eagle_adapters
from eagle_adapters.errors import AdaptationError

# SGLang warns about absent accelerators when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore")

CLASSES = {
    "mixtral:MixtralForCausalLM": ("mixtral:MixtralModel",),
    "gemma:GemmaForCausalLM": ("gemma:GemmaModel",),
    "arcee:ArceeForCausalLM": ("arcee:ArceeModel",),
    "llama:LlamaForCausalLM": ("llama:LlamaModel",),
    "qwen2_moe:Qwen2MoeForCausalLM": ("qwen2_moe:Qwen2MoeModel",),
}


@pytest.fixture(scope="module", autouse=True)
def kernels():
    sys.path.insert(0, str(HERE / "standin"))
    yield
    sys.path.remove(str(HERE / "standin"))


def load(name: str) -> type:
    module, _, cls = name.partition(":")
    return getattr(importlib.import_module(f"sglang.srt.models.{module}"), cls)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_complete_and_can_be_unwrapped(name, monkeypatch):
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", "1")
    classes = [load(name), *map(load, CLASSES[name])]
    before = [dict(vars(cls)) for cls in classes]
    wrapped = eagle_adapters.wrap(classes[0])
    assert wrapped is classes[0]
    for hook in ("set_eagle3_layers_to_capture", "get_embed_and_head", "set_embed_and_head", "get_input_embeddings"):
        assert callable(getattr(wrapped, hook))
    assert wrapped.__name__ == name.partition(":")[2]
    eagle_adapters.unwrap(wrapped)
    assert [dict(vars(cls)) for cls in classes] == before


def test_a_class_whose_decoder_the_checkpoint_chooses_asks_for_the_model(monkeypatch):
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", "1")
    with pytest.raises(AdaptationError) as caught:
        eagle_adapters.wrap(load("llava:LlavaForConditionalGeneration"))
    assert caught.value.code == "EA540"
