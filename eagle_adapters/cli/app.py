"""Puts the commands together and turns every way a command can end into an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import typer

from eagle_adapters.cli.render import ExitCode, Format, fail
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError, ContractError, EagleAdaptersError, IntrospectionError

COMMANDS = (
    "demo",
    "verify",
    "list",
    "show",
    "inspect",
    "doctor",
    "registry",
    "check",
    "diagnose",
    "accept",
    "calibrate",
)
"""The command modules in the order of `--help`."""

DEBUG_ENV = "EAGLE_ADAPTERS_DEBUG"
"""Environment variable that lets an internal error show its traceback."""

_FINDINGS = (AdaptationError, ContractError, IntrospectionError)
"""Errors about the target itself; all others are about what was asked or given."""

_HELP = """Supply, check and prove the EAGLE-3 target interface of any model class.

TARGET is a model folder, a config.json, an architecture name, or `module:Class`.
"""

_EPILOG = "Exit codes: 0 fine; 1 findings about the target; 2 wrong use or bad input; 3 internal error."


def build() -> typer.Typer:
    """The application with every command registered."""
    app = typer.Typer(
        name="eagle-adapters",
        help=_HELP,
        epilog=_EPILOG,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name in COMMANDS:
        importlib.import_module(f"eagle_adapters.cli.{name}").register(app)
    app.callback(help=_HELP)(_options)
    return app


def own_version() -> str:
    """The installed version of this package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("eagle-adapters")
    except PackageNotFoundError:
        return "not installed"


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"eagle-adapters {own_version()}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(
        False, "--version", help="Show the version and stop.", is_eager=True, callback=_show_version
    ),
) -> None:
    """The options before the command."""


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; nothing escapes but `SystemExit`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    output = _asked_format(arguments)
    try:
        code = typer.main.get_command(build()).main(
            arguments or ["--help"], prog_name="eagle-adapters", standalone_mode=False
        )
    except EagleAdaptersError as error:
        fail(error.diagnostics, output)
        return ExitCode.FINDINGS if isinstance(error, _FINDINGS) else ExitCode.USAGE
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        name = context.command_path if context is not None else "eagle-adapters"
        fail([Diagnostic("EA901", error.format_message(), next_step=f"{name} --help")], output)
        return ExitCode.USAGE
    except BrokenPipeError:
        # The reader went away (`| head`): give the interpreter's last flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FINE
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG_ENV):
            raise
        found = f"{type(error).__name__}: {error}"
        hint = f"set {DEBUG_ENV}=1 to see the traceback, and report it"
        fail([Diagnostic("EA999", "the command stopped on an internal error", found=found, next_step=hint)], output)
        return ExitCode.INTERNAL
    return int(code or ExitCode.FINE)


def _asked_format(arguments: list[str]) -> Format:
    """The asked output format, read before the arguments are parsed, since a parse error must honour it too."""
    for at, argument in enumerate(arguments):
        if argument == "--format=json" or arguments[at : at + 2] == ["--format", "json"]:
            return Format.JSON
    return Format.TABLE
