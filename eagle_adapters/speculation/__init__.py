"""Draft with any EAGLE-3 draft over a `transformers` target, verify losslessly, and measure what the draft is worth.

`speculate` decodes, `measure` gives the acceptance on prompts, `calibrate` finds what a draft's layer ids mean. The
modules here import torch; this package itself does not.
"""
