"""The engines: each backend plans the hooks of a target class of its engine; `base` says what they have in common."""
