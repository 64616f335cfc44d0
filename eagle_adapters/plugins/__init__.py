"""Entry points that the engines call in each of their processes. Nothing here imports an engine's models."""
