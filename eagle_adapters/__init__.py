"""Supply, check and prove the EAGLE-3 target interface of any model class, on stock SGLang and vLLM wheels.

`wrap` gives a model, or a model class, the hooks it lacks; `explain` says what was done and why; `unwrap` takes it
back; `speculate` decodes with a draft, losslessly. What else is promised stands in `eagle_adapters.contract` (what
engines ask of a target), `eagle_adapters.boundaries` (the one layer numbering), `eagle_adapters.drafts`,
`eagle_adapters.errors` and `eagle_adapters.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eagle_adapters.boundaries import Boundary, Convention
    from eagle_adapters.diagnostics import Diagnostic, Severity
    from eagle_adapters.errors import EagleAdaptersError
    from eagle_adapters.speculation.speculate import Speculation, speculate
    from eagle_adapters.wrapping import Explanation, explain, plan_for, unwrap, wrap

_HOMES = {
    "Boundary": "boundaries",
    "Convention": "boundaries",
    "Diagnostic": "diagnostics",
    "EagleAdaptersError": "errors",
    "Explanation": "wrapping",
    "Severity": "diagnostics",
    "Speculation": "speculation.speculate",
    "explain": "wrapping",
    "plan_for": "wrapping",
    "speculate": "speculation.speculate",
    "unwrap": "wrapping",
    "wrap": "wrapping",
}

__all__ = [
    "Boundary",
    "Convention",
    "Diagnostic",
    "EagleAdaptersError",
    "Explanation",
    "Severity",
    "Speculation",
    "explain",
    "plan_for",
    "speculate",
    "unwrap",
    "wrap",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module when it is first used, so that importing the package stays cheap."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"eagle_adapters.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'eagle_adapters' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
