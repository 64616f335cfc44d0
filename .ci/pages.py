"""Writes what is generated in `docs/`: the page of all diagnostics and the JSON schemas of the data files."""

from __future__ import annotations

import json
from pathlib import Path

from eagle_adapters.diagnostics import CODES
from eagle_adapters.registry import json_schema

DOCS = Path(__file__).resolve().parent.parent / "docs"

AREAS = {
    "EA0": "Boundaries and layer ids",
    "EA1": "Data files and the registry",
    "EA2": "Introspection",
    "EA3": "The contract",
    "EA4": "Plans, generated code, applying",
    "EA5": "Engines",
    "EA6": "Verification",
    "EA7": "Drafts",
    "EA8": "Speculation, calibration, diagnosis",
    "EA9": "Use of the program, internal errors",
}


def pages() -> dict[Path, str]:
    """Every generated file with its text."""
    found = {DOCS / "errors.md": errors_page()}
    for kind in ("registry", "adapter"):
        found[DOCS / "schema" / f"{kind}.json"] = json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"
    return found


def errors_page() -> str:
    """The page of all codes, by area."""
    lines = [
        "# Errors and findings",
        "",
        "<!-- Written by `make pages` from eagle_adapters/diagnostics.py. -->",
        "",
        "Everything the library has to say carries one of these codes. Codes are stable, texts are not. Each finding",
        "names what was expected, what was found, where, and the next step.",
    ]
    for area, title in AREAS.items():
        codes = {code: text for code, text in sorted(CODES.items()) if code.startswith(area)}
        if codes:
            lines += ["", f"## {title}", "", "| code | meaning |", "| --- | --- |"]
            lines += [f"| `{code}` | {text} |" for code, text in codes.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, "utf-8")
