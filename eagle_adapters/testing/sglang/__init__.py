"""Real, unmodified SGLang engines on tiny checkpoints: what tests and `verify --engine sglang` run on."""
