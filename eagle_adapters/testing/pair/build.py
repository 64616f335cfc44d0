"""Build the pair, or find it in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eagle_adapters.boundaries import Boundary, Convention, default_boundaries, to_ids
from eagle_adapters.testing.pair import corpus, draft, target, tokenizer
from eagle_adapters.testing.pair.target import NARROW, Progress, Recipe

HIDDEN, LAYERS, DRAFT_VOCAB = 128, 8, 128
TARGET = Recipe(steps=450, batch=8, length=128, rate=3e-3, seed=0)
DRAFT = Recipe(steps=160, batch=8, length=128, rate=2e-3, seed=1)
THREADS = 2


@dataclass(frozen=True, slots=True)
class Pair:
    """A trained target and its draft, as checkpoint folders.

    Attributes:
        folder: holds both, and `pair.json`.
        target: the `transformers` checkpoint.
        draft: the draft's folder; its ids are outputs of layers, as SpecForge writes them.
        boundaries: what the draft was trained on.
    """

    folder: Path
    target: Path
    draft: Path
    boundaries: tuple[Boundary, ...]

    def load_target(self) -> Any:
        """The target as a `transformers` model in float32."""
        import torch
        from transformers import Kimi_K25ForConditionalGeneration

        model = Kimi_K25ForConditionalGeneration.from_pretrained(self.target, dtype=torch.float32)
        model.set_experts_implementation("eager")
        return model.eval().requires_grad_(False)


def load_pair(*, progress: Progress | None = None) -> Pair:
    """The pair from the cache (`$XDG_CACHE_HOME/eagle-adapters/pairs/<key>`); trained first where it is not there."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "eagle-adapters" / "pairs"
    folder = root / key()
    if not (folder / "pair.json").is_file():
        with _alone(folder):
            if not (folder / "pair.json").is_file():
                return build_pair(folder, progress=progress)
    return _open(folder)


def key() -> str:
    """What the pair depends on: the code that trains it, the text, and the version of transformers.

    Not the version of torch, so that the environments of all engines share one pair.
    """
    here = Path(__file__).parent
    layers = here.parent.parent / "speculation"
    code = [*sorted(here.glob("*.py")), layers / "layers.py", layers / "drafter.py"]
    parts = [path.read_text("utf-8") for path in code]
    parts += [corpus.digest(), version("transformers")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def build_pair(folder: Path, *, progress: Progress | None = None) -> Pair:
    """Train the pair and write it to `folder`, which appears only when it is complete.

    Args:
        folder: must not exist yet; if another process finishes it first, that one's pair is taken.
        progress: called after every step.
    """
    import torch

    tell = progress or (lambda stage, step, steps, loss: None)
    boundaries = default_boundaries(LAYERS)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch, _threads():
        new = _open(Path(scratch), boundaries)
        new.target.mkdir()
        new.draft.mkdir()
        narrow = target.train(target.build(NARROW, hidden=HIDDEN, layers=LAYERS, seed=TARGET.seed), TARGET, tell)
        wide = target.widen(narrow, hidden=HIDDEN, layers=LAYERS)
        wide.save_pretrained(new.target)
        tokenizer.save(new.target)
        ids = to_ids(boundaries, Convention.LAYER_OUTPUT, LAYERS)
        draft.write_config(new.draft, draft.config(HIDDEN, DRAFT_VOCAB, ids))
        draft.save(draft.train(new.draft, narrow, boundaries, DRAFT, tell), new.draft)
        about = {
            "target": asdict(TARGET),
            "draft": asdict(DRAFT),
            "boundaries": [int(b) for b in boundaries],
            "text": corpus.digest(),
            "torch": torch.__version__,
            "transformers": version("transformers"),
        }
        (new.folder / "pair.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        _publish(new.folder, folder)
    return _open(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, so that of many processes one trains and the others wait."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _publish(scratch: Path, folder: Path) -> None:
    """Give the finished folder its name, in one step."""
    done = scratch.with_name(scratch.name + "-done")
    shutil.copytree(scratch, done)
    try:
        done.rename(folder)
    except OSError:
        shutil.rmtree(done)
        if not (folder / "pair.json").is_file():
            raise


def _open(folder: Path, boundaries: tuple[Boundary, ...] | None = None) -> Pair:
    if boundaries is None:
        about = json.loads((folder / "pair.json").read_text("utf-8"))
        boundaries = tuple(Boundary(b) for b in about["boundaries"])
    return Pair(folder, folder / "target", folder / "draft", boundaries)


@contextmanager
def _threads() -> Iterator[None]:
    """A fixed number of threads, since sums depend on it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)
