"""From facts to source text to functions: what the plug-in compiles is what a patch inserts.

The way through: `sources.class_source(cls)` reads a class; `decoder.capturing_forward(cls, style)` gives the
capturing forward of a decoder as an `Instrumented` (one source text, digest of the original, residual form with
evidence) or raises `AdaptationError` with the reason; `compile.compile_method` makes a function of it. Hooks and
wrapper forwards are worded by each backend.
"""
