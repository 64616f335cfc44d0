"""The source texts of the hooks that a vLLM class gets: short methods that lead to the decoder."""

from __future__ import annotations


def set_layers(path: str, inner: str) -> str:
    """`set_aux_hidden_state_layers`, handed down to `self.<path>`.

    Args:
        path: dotted attribute path to the object that takes the call.
        inner: the method called there.
    """
    return (
        "def set_aux_hidden_state_layers(self, layers):\n"
        '    """Capture the residual stream at these boundaries from the next forward on."""\n'
        f"    self{_dot(path)}.{inner}(layers)\n"
    )


def default_layers(path: str, layers: str | None) -> str:
    """`get_eagle3_default_aux_hidden_state_layers`: asked of `self.<path>`, or counted there in its list `layers`."""
    head = (
        'def get_eagle3_default_aux_hidden_state_layers(self):\n    """The boundaries of a draft that names none."""\n'
    )
    if layers is None:
        return f"{head}    return self{_dot(path)}.get_eagle3_default_aux_hidden_state_layers()\n"
    return f"{head}    count = len(self{_dot(path)}.{layers})\n    return (2, count // 2, count - 3)\n"


def alias(name: str, path: str) -> str:
    """A read-only property: what the engine reads as `name` is `self.<path>` (the module itself for an empty path)."""
    return (
        "@property\n"
        f"def {name}(self):\n"
        f'    """`{path or "self"}`, under the name that the engine reads."""\n'
        f"    return self{_dot(path)}\n"
    )


MIXIN: dict[str, str] = {
    "_set_aux_hidden_state_layers": (
        "def _set_aux_hidden_state_layers(self, layers):\n"
        '    """Capture the residual stream at these boundaries, ascending, from the next forward on."""\n'
        "    self.aux_hidden_state_layers = tuple(sorted(set(layers)))\n"
    ),
}
"""What a decoder gets that is no `EagleModelMixin` (vllm 0.32.0, model_executor/models/interfaces.py)."""


def _dot(path: str) -> str:
    return f".{path}" if path else ""
