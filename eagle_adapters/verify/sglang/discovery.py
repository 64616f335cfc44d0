"""Make this package's SGLang plug-in, and the observer, discoverable in an engine's processes.

SGLang finds plug-ins through installed distributions' entry points. A checkout that was not installed has none, and the
observer must exist only where somebody observes; both get a metadata folder of their own on PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

GROUP = "sglang.srt.plugins"
PLUGIN = ("eagle_adapters", "eagle_adapters.plugins.sglang:register")
OBSERVER = ("eagle_adapters_observer", "eagle_adapters.verify.sglang.observer:register")


def plugin_folder(root: Path, plugins: Mapping[str, str] | None = None) -> Path:
    """A folder for PYTHONPATH that declares the observer, this package's plug-in unless it is installed, and `plugins`.

    Args:
        root: where the folder is made.
        plugins: further entry points, name -> `module:function`, loaded before this package's own.
    """
    wanted = dict(plugins or {})
    if not any(point.value == PLUGIN[1] for point in entry_points(group=GROUP)):
        wanted[PLUGIN[0]] = PLUGIN[1]
    wanted[OBSERVER[0]] = OBSERVER[1]
    folder = root / "entry_points"
    for number, (name, value) in enumerate(wanted.items()):
        info = folder / f"eagle_adapters_session_{number}_{name}-0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: eagle-adapters-session-{number}-{name}\nVersion: 0\n", "utf-8"
        )
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n", "utf-8")
    return folder
