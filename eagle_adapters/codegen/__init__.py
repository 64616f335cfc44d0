"""From facts to source text to functions: what the plug-in compiles is what a patch inserts."""
