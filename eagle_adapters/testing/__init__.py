"""What tests of targets, drafts and engines are made of; it ships, so that others can test theirs with it.

`trees` makes random delegation trees, `forwards` random decoder forwards (both for hypothesis), `checkpoints` small
drafts and targets of every format, `pair` a trained target and draft.
"""
