"""Which decoders of an installed engine codegen can capture, and why it refuses the others.

Run in an engine's environment, or point it at its site-packages; nothing of the engine is imported:

    python benchmarks/codegen_coverage.py vllm /path/to/site-packages
    python benchmarks/codegen_coverage.py sglang /path/to/site-packages --json out.json
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
from pathlib import Path
from typing import Any

from eagle_adapters.codegen.decoder import capturing_forward
from eagle_adapters.codegen.iteration import read_iteration
from eagle_adapters.codegen.native import captures
from eagle_adapters.codegen.sources import ClassSource, load_module
from eagle_adapters.codegen.style import SGLANG, VLLM
from eagle_adapters.errors import AdaptationError

FOLDERS = {"vllm": "vllm.model_executor.models", "sglang": "sglang.srt.models"}
STYLES = {"vllm": VLLM, "sglang": SGLANG}
SIGNS = {"positions", "position_ids", "forward_batch", "intermediate_tensors"}
"""Parameters that tell a text decoder's forward from a vision or audio encoder's."""

NOT_TARGETS = ("Vision", "Encoder", "ViT", "Vit", "Eagle", "Draft", "MTP", "MultiToken", "Stack", "ForRetrieval")


def decoders(engine: str, root: Path) -> list[ClassSource]:
    """Every class of the engine's model folder whose own forward walks layers and looks like a text decoder's."""
    package = FOLDERS[engine]
    folder = root.joinpath(*package.split("."))
    found = []
    for file in sorted(folder.rglob("*.py")):
        name = ".".join([package, *file.relative_to(folder).with_suffix("").parts])
        module = load_module(root, name)
        if module is None or "eagle" in file.stem:
            continue
        for class_name, node in module.names.items():
            if not isinstance(node, ast.ClassDef) or any(word in class_name for word in NOT_TARGETS):
                continue
            forward = next((s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "forward"), None)
            if forward is None or not SIGNS & {a.arg for a in forward.args.args}:
                continue
            if any(isinstance(n, ast.For) and read_iteration(n) is not None for n in ast.walk(forward)):
                found.append(ClassSource(module, node, class_name))
    return found


def outcome(cls: ClassSource, engine: str) -> dict[str, Any]:
    """What codegen does with one decoder; a produced text must compile."""
    method = cls.method("forward")
    assert method is not None
    row: dict[str, Any] = {"class": cls.name, "native": captures(method.parse()) is not None}
    try:
        text = capturing_forward(cls, STYLES[engine], anew=True)
    except AdaptationError as error:
        finding = error.diagnostics[0]
        return {**row, "refused": finding.code, "reason": finding.message, "where": finding.where}
    compile(text.source, cls.name, "exec")
    return {
        **row,
        "form": text.residual.form.value,
        "relay": text.relay,
        "pipeline_safe": text.pipeline_safe,
        "float16_safe": text.residual.float16_safe,
        "tensor_parallel_safe": text.residual.tensor_parallel_safe,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=sorted(FOLDERS))
    parser.add_argument("root", type=Path, help="site-packages that holds the engine")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [outcome(cls, options.engine) for cls in decoders(options.engine, options.root)]
    counts: collections.Counter[str] = collections.Counter()
    for row in rows:
        what = row.get("form") or row["refused"]
        counts[f"{what}{' (captures already)' if row['native'] else ''}"] += 1
        detail = f"{row['reason']} at {row['where']}" if "refused" in row else ""
        print(f"{row['class']:90} {what:10} {detail}")
    captured = sum("form" in row for row in rows)
    print(f"\n{captured} of {len(rows)} decoders: {dict(sorted(counts.items()))}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
