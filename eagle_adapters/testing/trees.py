"""Synthetic delegation trees: random wrappers around a small decoder, with decoys and traps, live and as source.

`trees()` is a hypothesis strategy of `Tree`s. A tree is one piece of Python text that defines torch modules, with what
is true about it:

    tree.source         the text; `tree.target` is the name of the outermost class in it
    tree.decoder        the path of the decoder, or None when the tree has none
    tree.num_layers     N
    tree.code           the diagnostic code that inspection must end with, or None when it must succeed
    tree.build(seed)    a live model from that text, weights from the seed; `model(ids)` is [batch, length, WORDS]
    tree.write(folder)  the text as a file, for `inspect_class(f"{path}:{tree.target}")`

The classes of a built tree have their source in `linecache`, so `inspect.getsource` works on them. A built tree runs:
embedding -> layers (residual stream, [batch, length, WIDTH]) -> final norm -> head.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

WIDTH, WORDS = 8, 32

_PRELUDE = f"""\
from collections import OrderedDict

import torch
from torch import nn

WIDTH, WORDS = {WIDTH}, {WORDS}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.o_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden):
        return self.o_proj(hidden.cumsum(1))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = Attention()
        self.mlp = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden):
        hidden = hidden + 0.1 * self.self_attn(hidden)
        return hidden + 0.1 * torch.tanh(self.mlp(hidden))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, WIDTH, 2)
        self.position_embedding = nn.Embedding(4, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)


class Rival(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        hidden = self.embed_tokens(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.norm(hidden)


class Draft(nn.Module):
    def __init__(self, embed_tokens):
        super().__init__()
        self.embed_tokens = embed_tokens
        self.layers = nn.ModuleList([Layer()])
"""

_CONTAINERS = (
    "nn.ModuleList([Layer() for _ in range({n})])",
    "nn.ModuleList(layer_cls() for _ in range({n}))",
    "nn.Sequential(*[Layer() for _ in range({n})])",
    "nn.ModuleDict({{str(i): Layer() for i in range({n})}})",
    'nn.ModuleDict({{f"layer_{{i}}": layer_cls() for i in range({n})}})',
    "OrderedDict((str(i), Layer()) for i in range({n}))",
    "nn.ModuleList()\n        for _ in range({n}):\n            self.{name}.append(Layer())",
    "self._make_layers({n})",
)
_HOLDERS = (
    *("language_model", "model", "text_model", "llm", "thinker", "transformer", "backbone", "decoder", "text"),
    *("lm", "base", "inner", "core", "gpt", "zz"),
)
_TOWERS = ("vision_tower", "visual", "audio_tower", "vision_model", "speech_encoder", "tower", "image_encoder")
_RIVALS = ("talker", "draft", "mtp", "audio_decoder", "code_predictor", "eagle")


@dataclass(frozen=True, slots=True)
class Tree:
    """One synthetic target: its text, and what is true about it. See the module's text for the fields."""

    source: str
    target: str
    decoder: str | None
    num_layers: int
    code: str | None

    @property
    def module(self) -> str:
        """The name of the module that the text makes."""
        return f"tree_{hashlib.sha256(self.source.encode()).hexdigest()[:16]}"

    def write(self, folder: Path) -> Path:
        """The text as a file in `folder`."""
        path = folder / f"{self.module}.py"
        path.write_text(self.source, "utf-8")
        return path

    def classes(self) -> ModuleType:
        """The text, run as a module (once)."""
        if self.module not in sys.modules:
            module = ModuleType(self.module)
            filename = f"<{self.module}>"
            linecache.cache[filename] = (len(self.source), None, self.source.splitlines(keepends=True), filename)
            exec(compile(self.source, filename, "exec"), vars(module))
            module.__file__ = filename
            sys.modules[self.module] = module
        return sys.modules[self.module]

    def build(self, seed: int = 0) -> Any:
        """A live model in eval mode, with weights that depend on the seed only."""
        import torch

        classes = self.classes()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return getattr(classes, self.target)().eval()


@st.composite
def trees(draw: st.DrawFn, *, sound: bool = False) -> Tree:
    """Delegation trees; with `sound` only those whose decoder must be found, which therefore can be wrapped."""
    layers = draw(st.integers(1, 4))
    code = None if sound else draw(st.sampled_from([None, None, None, None, "EA201", "EA202"]))
    texts = [_PRELUDE, _decoder(draw, layers)]
    inner, path, below_head = "Decoder", "", draw(st.booleans())
    for level in range(draw(st.integers(1, 4))):
        name = f"Wrapper{level}"
        holder = draw(st.sampled_from(_HOLDERS))
        head = (level == 0) if below_head else None
        texts.append(_wrapper(draw, name, holder, inner, head=bool(head)))
        inner, path = name, f"{holder}.{path}" if path else holder
    texts.append(_target(draw, inner, head=not below_head, code=code))
    decoder = {None: f"inner_lm.{path}", "EA201": None, "EA202": None}[code]
    return Tree("\n\n".join(texts), "Target", decoder, layers, code)


def _decoder(draw: st.DrawFn, layers: int) -> str:
    embedding = draw(st.sampled_from(["embed_tokens", "wte", "word_embeddings", "tok_embeddings", "zembed"]))
    name = draw(st.sampled_from(["layers", "h", "blocks", "layer", "stages"]))
    norm = draw(st.sampled_from(["norm", "ln_f", "final_layernorm", None]))
    container = draw(st.sampled_from(_CONTAINERS)).format(n=layers, name=name)
    mapping = "Dict" in container
    body = [
        f"self.{embedding} = nn.Embedding(WORDS, WIDTH)",
        f"self.{name} = {container}",
        f"self.{norm} = nn.LayerNorm(WIDTH)" if norm else "self.norm = None",
    ]
    if draw(st.booleans()):
        body.append("self.mtp_layers = nn.ModuleList([Layer()])")
    if draw(st.booleans()):
        body.append(f"self.draft = Draft(self.{embedding})")
    body = [body[0], *draw(st.permutations(body[1:]))]
    over = f"self.{name}.values()" if mapping else f"self.{name}"
    lines = [
        "class DecoderBase(nn.Module):",
        "    def __init__(self, layer_cls=Layer):",
        "        super().__init__()",
        *(f"        {line}" for line in body),
        "",
        "    def _make_layers(self, count):",
        "        made = [Layer() for _ in range(count)]",
        "        return nn.ModuleList(made)",
        "",
        "    def forward(self, ids):",
        f"        hidden = self.{embedding}(ids)",
        f"        for layer in {over}:",
        "            hidden = layer(hidden)",
        f"        return {f'self.{norm}(hidden)' if norm else 'hidden'}",
        "",
        "",
        "class Decoder(DecoderBase):",
        draw(st.sampled_from(["    pass", "    def __init__(self):\n        super().__init__(layer_cls=Layer)"])),
    ]
    return "\n".join(lines)


def _wrapper(draw: st.DrawFn, name: str, holder: str, inner: str, *, head: bool) -> str:
    make = draw(
        st.sampled_from(
            [
                f"self.{holder} = {inner}()",
                f"self.{holder} = self._make()",
                f"self.{holder} = self.inner_cls()",
                f"self.{holder} = None\n        if {name}.flag:\n            self.{holder} = {inner}()",
                f'self.add_module("{holder}", {inner}())',
                f"{inner.lower()} = {inner}()\n        self.{holder} = {inner.lower()}.eval()",
            ]
        )
    )
    decoys = [
        *(f"self.{decoy} = Tower()" for decoy in draw(st.lists(st.sampled_from(_TOWERS), max_size=2, unique=True))),
        *(f"self.{decoy} = Rival()" for decoy in draw(st.lists(st.sampled_from(_RIVALS), max_size=1))),
        *draw(st.sampled_from([[], ["self.nothing = None"], ["self.projector = nn.Linear(WIDTH, WIDTH)"]])),
    ]
    body = draw(st.permutations([make, *decoys]))
    if head:
        body = [*body, "self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)"]
    if draw(st.booleans()):
        body = [
            *body,
            f"self.{holder}.__dict__['parent'] = self" if draw(st.booleans()) else f"self.zalias = self.{holder}",
        ]
    lines = [
        f"class {name}(nn.Module):",
        "    flag = True",
        f"    inner_cls = {inner}",
        "",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {line}" for line in body),
        "",
        "    def _make(self):",
        f"        return {inner}()",
        "",
        "    def forward(self, ids):",
        f"        hidden = self.{holder}(ids)",
        f"        return {'self.lm_head(hidden)' if head else 'hidden'}",
    ]
    if draw(st.booleans()):
        lines += ["", "    @property", "    def broken(self):", '        raise RuntimeError("not ready")']
    if holder != "model" and draw(st.booleans()):
        lines += ["", "    @property", "    def model(self):", f"        return self.{holder}"]
    answer = draw(st.sampled_from([None, "self", f"self.{holder}"]))
    if answer is not None:
        method = draw(st.sampled_from(["get_language_model", "get_decoder"]))
        lines += ["", f"    def {method}(self):", f"        return {answer}"]
    return "\n".join(lines)


def _target(draw: st.DrawFn, inner: str, *, head: bool, code: str | None) -> str:
    body = ["self.inner_lm = " + {None: f"{inner}()", "EA201": "Rival()", "EA202": "None"}[code]]
    if code == "EA201":
        body.append("self.other_lm = Rival()")
    body += [f"self.{decoy} = Tower()" for decoy in draw(st.lists(st.sampled_from(_TOWERS), max_size=2, unique=True))]
    body = draw(st.permutations(body))
    lines = [
        "class Target(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {line}" for line in body),
        *(["        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)"] if head else []),
        "",
        "    def forward(self, ids):",
        "        hidden = self.inner_lm(ids)",
        f"        return {'self.lm_head(hidden)' if head else 'hidden'}",
    ]
    if draw(st.booleans()):
        lines += [
            "",
            "    def get_language_model(self):",
            "        return " + draw(st.sampled_from(["self", "self.inner_lm" if code != "EA201" else "self"])),
        ]
    return "\n".join(lines)
