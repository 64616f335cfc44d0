"""Run real vLLM on tiny checkpoints and read what it did: tokens, acceptance counters, and the states its drafter got."""
