"""The exceptions of the library. Types and codes are API, message texts are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eagle_adapters.diagnostics import Diagnostic


class EagleAdaptersError(Exception):
    """Base of all errors raised on purpose; carries one or more diagnostics.

    Attributes:
        diagnostics: what is wrong, all of it at once.
    """

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        self.diagnostics: Sequence[Diagnostic] = (
            (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        )
        super().__init__("\n".join(map(str, self.diagnostics)))

    @property
    def code(self) -> str:
        """The code of the first diagnostic."""
        return self.diagnostics[0].code

    def __reduce__(self) -> tuple[type[EagleAdaptersError], tuple[Sequence[Diagnostic]]]:
        return type(self), (self.diagnostics,)


class BoundaryError(EagleAdaptersError, ValueError):
    """A layer id or boundary is out of range, double, or not expressible."""


class DataError(EagleAdaptersError, ValueError):
    """A data file (registry, adapter, draft, config) is missing or wrong."""


class IntrospectionError(EagleAdaptersError, LookupError):
    """No decoder, or more than one equally good decoder, was found."""


class ContractError(EagleAdaptersError, TypeError):
    """A target does not meet the contract of an engine."""


class AdaptationError(EagleAdaptersError, RuntimeError):
    """A target cannot be adapted, or a plan does not fit it; nothing was changed."""


class UsageError(EagleAdaptersError, ValueError):
    """A call or a command was used wrongly."""
