"""The kernels that SGLang's CPU engine calls: whether this machine can load them, and whose they are."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

from eagle_adapters.diagnostics import Diagnostic, Severity
from eagle_adapters.errors import AdaptationError

_PROBE = """
import torch, sgl_kernel
torch.ops.sgl_kernel.extend_attention_cpu
print(getattr(sgl_kernel, "STAND_IN", ""))
"""


@cache
def find_kernels() -> str:
    """The name of the stand-in that is used in place of SGLang's CPU kernels; empty when they are SGLang's own.

    Raises:
        AdaptationError: EA615, there are none.
    """
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE],
        env={**os.environ, "SGLANG_USE_CPU_ENGINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode == 0:
        return probe.stdout.strip()
    raise AdaptationError(
        Diagnostic(
            "EA615",
            "SGLang's CPU kernels cannot be loaded, and the proof is run by its CPU engine",
            expected="a package sgl_kernel with torch.ops.sgl_kernel.extend_attention_cpu: SGLang's own CPU build, "
            "or the stand-in in plain PyTorch of this project's source",
            found=next((line for line in reversed(probe.stderr.splitlines()) if line.strip()), "no answer"),
            consequence="nothing was verified; serving on a GPU needs neither",
            next_step="in a checkout of eagle-adapters: PYTHONPATH=tests/sglang/standin eagle-adapters verify ... "
            "--engine sglang",
        )
    )


def remark(stand_in: str) -> Diagnostic:
    """What a reader of the evidence has to know when a stand-in was used."""
    return Diagnostic(
        "EA616",
        "SGLang's kernels were a stand-in",
        Severity.NOTE,
        found=stand_in,
        consequence="model code, scheduler and capture were SGLang's own; attention and cache kernels were not",
    )
