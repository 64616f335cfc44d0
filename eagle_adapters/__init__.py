"""Supply, check and prove the EAGLE-3 target interface of any model class, on stock SGLang and vLLM wheels."""
