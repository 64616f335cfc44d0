"""How the command line starts and ends: help, exit codes, errors as text and as JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import typer

from eagle_adapters.cli import app as frame
from eagle_adapters.cli import main
from eagle_adapters.cli.render import ExitCode, Format, FormatOption, Table, emit
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import (
    AdaptationError,
    BoundaryError,
    ContractError,
    DataError,
    IntrospectionError,
    UsageError,
)


@pytest.fixture
def command(monkeypatch):
    """Replace the application by one with the single command `act`, whose body is the given function."""

    def use(body):
        def build():
            app = typer.Typer(rich_markup_mode=None)

            @app.command("act")
            def act(output: FormatOption = Format.TABLE):
                return body()

            app.callback()(lambda: None)
            return app

        monkeypatch.setattr(frame, "build", build)

    return use


def raiser(error):
    def body():
        raise error

    return body


def test_help_lists_every_command_and_the_exit_codes(capsys):
    assert main([]) == 0

    text = capsys.readouterr().out
    listed = re.findall(r"^  (\w+) ", text.partition("Commands:")[2].partition("\n\n")[0], re.MULTILINE)
    assert sorted(listed) == sorted(frame.COMMANDS)
    assert "Exit codes: 0 fine; 1 findings" in text


@pytest.mark.parametrize(
    "command", [*(c for c in frame.COMMANDS if c != "registry"), "registry validate", "registry schema"]
)
def test_every_command_has_help_and_a_format(command, capsys):
    assert main([*command.split(), "--help"]) == 0

    assert "--format <table|json>" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"eagle-adapters {frame.own_version()}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["list", "--nonsense"], ["list", "--format", "xml"], ["show"]])
def test_wrong_use_is_two(arguments, capsys):
    assert main(arguments) == 2

    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("EA901 error: ")
    assert "--help" in found.err


@pytest.mark.parametrize("asked", [["--format", "json"], ["--format=json"]])
def test_wrong_use_in_json(asked, capsys):
    assert main(["show", *asked]) == 2

    found = capsys.readouterr()
    (finding,) = json.loads(found.out)["error"]
    assert finding["code"] == "EA901"
    assert finding["next_step"] == "eagle-adapters show --help"
    assert found.err == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError, 2),
        (DataError, 2),
        (BoundaryError, 2),
        (IntrospectionError, 1),
        (ContractError, 1),
        (AdaptationError, 1),
    ],
)
def test_errors_end_with_their_code(command, capsys, error, code):
    command(raiser(error([Diagnostic("EA403", "first", found="[bold]x[/bold]"), Diagnostic("EA404", "second")])))

    assert main(["act"]) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err == "EA403 error: first\n  found: [bold]x[/bold]\nEA404 error: second\n"

    assert main(["act", "--format", "json"]) == code
    assert [finding["code"] for finding in json.loads(capsys.readouterr().out)["error"]] == ["EA403", "EA404"]


def test_an_unexpected_error_is_three(command, capsys, monkeypatch):
    command(raiser(ZeroDivisionError("oops")))

    assert main(["act"]) == 3
    text = capsys.readouterr().err
    assert text.startswith("EA999 error: ")
    assert "ZeroDivisionError: oops" in text
    assert frame.DEBUG_ENV in text

    monkeypatch.setenv(frame.DEBUG_ENV, "1")
    with pytest.raises(ZeroDivisionError):
        main(["act"])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, EOFError])
def test_an_interrupted_command(command, stop):
    command(raiser(stop))

    assert main(["act"]) == ExitCode.INTERRUPTED


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (ExitCode.FINDINGS, 1), (0, 0)])
def test_a_command_returns_its_exit_code(command, returned, code):
    command(lambda: returned)

    assert main(["act"]) == code


def test_a_command_may_exit(command):
    command(raiser(typer.Exit(1)))

    assert main(["act"]) == 1


def test_a_reader_that_goes_away_is_no_error():
    """`eagle-adapters registry schema | head -1`, with more output than a pipe holds."""
    script = (
        "import sys; from eagle_adapters.cli.render import Format, emit; from eagle_adapters.cli import app, main; "
        "import typer; a = typer.Typer(); a.callback()(lambda: None); "
        "a.command('act')(lambda: emit(['x' * 100] * 10000, Format.JSON)); app.build = lambda: a; "
        "sys.exit(main(['act']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 0


def test_tables_print_what_they_are_given(capsys):
    emit(None, Format.TABLE, "text [red]", Table(("a", "b"), [("[1, 2]", None), (3, "x")], "title", ["red"]))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "text [red]"
    assert lines[1].strip() == "title"
    assert "[1, 2]" in lines[5]
    assert [cell.strip() for cell in lines[6].strip("│").split("│")] == ["3", "x"]


def test_python_m_runs_the_same():
    arguments = ["-m", "eagle_adapters", "show", "nobody", "--format", "json"]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert json.loads(done.stdout)["error"][0]["code"] == "EA117"
