"""The `eagle-adapters` command: one module per command, each with `register(app)`.

A command imports what is heavy (torch, an engine, libcst) inside its function, so that `--help` stays fast; it prints
only through `eagle_adapters.cli.render`; it returns its exit code (`ExitCode`, or None for 0).
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 fine, 1 findings, 2 usage or bad input, 3 internal error.

    Args:
        argv: the arguments after the program's name; the process's own by default.
    """
    from eagle_adapters.cli.app import run

    return run(argv)
