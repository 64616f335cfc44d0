"""Which class an engine has for an architecture name, read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from eagle_adapters.introspect.files import ClassDefinition, Files

VLLM_MODELS = "vllm.model_executor.models"
SGLANG_MODELS = "sglang.srt.models"


def engine_class(engine: str, architecture: str, *, roots: Sequence[str | Path] | None = None) -> str | None:
    """The `module:Class` that an installed engine serves an architecture with, or None; nothing is imported.

    Args:
        engine: `vllm` or `sglang`.
        architecture: a name from `architectures` of a config.json.
        roots: folders to find the engine in, before `sys.path`.
    """
    files = Files([Path(root) for root in roots or ()])
    found = {"vllm": vllm_architecture, "sglang": _sglang_architecture}[engine](files, architecture)
    return None if found is None else found.name


def vllm_architecture(files: Files, name: str) -> ClassDefinition | None:
    """The class in vLLM's tables of models (vllm 0.32.0, models/registry.py)."""
    file = files.file(f"{VLLM_MODELS}.registry")
    for statement in file.tree.body if file is not None else ():
        value = getattr(statement, "value", None)
        for key, entry in zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == name and isinstance(entry, ast.Tuple):
                module, qualname = (getattr(part, "value", "") for part in entry.elts[:2])
                home = module if module.startswith("vllm.") else f"{VLLM_MODELS}.{module}"
                found = files.member(home, qualname)
                return found if isinstance(found, ClassDefinition) else None
    return None


def _sglang_architecture(files: Files, name: str) -> ClassDefinition | None:
    """The class of that name in a model file of SGLang (sglang 0.5.23, models/registry.py: `EntryClass`)."""
    folder = files.place(SGLANG_MODELS)
    pattern = re.compile(rf"^class {re.escape(name)}\b", re.MULTILINE)
    for path in sorted(folder.glob("*.py")) if folder is not None else ():
        text = path.read_text("utf-8")
        if "EntryClass" in text and pattern.search(text):
            found = files.member(f"{SGLANG_MODELS}.{path.stem}", name)
            if isinstance(found, ClassDefinition):
                return found
    return None
