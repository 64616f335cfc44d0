"""EAGLE-3 draft checkpoints: read any format, audit it against its target, convert it.

`read_draft` gives a `DraftSpec`, `check_draft` a `Verdict`, `convert_draft` writes another format. Nothing here imports
torch, and no pickle is ever opened.
"""
