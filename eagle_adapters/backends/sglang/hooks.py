"""The text of the methods that SGLang calls on a target, written for the place where its parts were found."""

from __future__ import annotations

from eagle_adapters.backends.sglang.decoder import Capture
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError
from eagle_adapters.introspect import Anatomy

SETTER = "set_eagle3_layers_to_capture"


def setter_source(anatomy: Anatomy, root: str, holder: str, capture: Capture) -> str:
    """`set_eagle3_layers_to_capture` of the top-level class."""
    assert anatomy.layers is not None, "only a dynamic chain has no layers"
    decoder = anatomy.decoder.path
    return (
        f"def {SETTER}(self, layer_ids=None):\n"
        '    """Capture the residual stream at the boundaries that the layer ids name; None for the default ones."""\n'
        "    from eagle_adapters.backends.sglang.capture import set_boundaries\n"
        "\n"
        "    set_boundaries(\n"
        "        self,\n"
        "        layer_ids,\n"
        f"        decoder={relative(decoder, root)!r},\n"
        f"        layers={relative(anatomy.layers.path, decoder)!r},\n"
        f"        holder={relative(holder, root)!r},\n"
        f"        own={None if capture.own is None else capture.own.value!r},\n"
        f"        last={capture.last.value!r},\n"
        f"        several_ranks={capture.several_ranks},\n"
        "    )\n"
    )


def delegations(embedding_path: str, head_path: str, path: str) -> dict[str, str]:
    """The methods about embedding and head for the module at `path` of the chain, name -> source."""
    out: dict[str, str] = {}
    embedding, head = (f"self.{relative(place, path)}" for place in (embedding_path, head_path))
    out["get_embed_and_head"] = (
        "def get_embed_and_head(self):\n"
        '    """The embedding and head weights, each [padded vocab, hidden]."""\n'
        f"    return {embedding}.weight, {head}.weight\n"
    )
    out["set_embed_and_head"] = (
        "def set_embed_and_head(self, embed, head):\n"
        '    """Put other weights in the place of the embedding and the head."""\n'
        f"    del {embedding}.weight\n"
        f"    {embedding}.weight = embed\n"
        f"    if {head} is not {embedding}:\n"
        f"        del {head}.weight\n"
        f"        {head}.weight = head\n"
    )
    out["get_input_embeddings"] = (
        f'def get_input_embeddings(self):\n    """The token embedding."""\n    return {embedding}\n'
    )
    if "." in relative(head_path, path):
        out["lm_head"] = f'@property\ndef lm_head(self):\n    """The output head."""\n    return {head}\n'
    return out


def within(path: str, root: str) -> bool:
    """Whether `path` is `root` or lies below it."""
    return not root or path == root or path.startswith(root + ".")


def relative(path: str, root: str) -> str:
    """`path` as seen from `root`, both dotted paths from the target."""
    return path.removeprefix(root).removeprefix(".") if root else path


def refused(message: str, *, expected: str, found: str) -> AdaptationError:
    """EA540: the class cannot be adapted."""
    return AdaptationError(Diagnostic("EA540", message, expected=expected, found=found, next_step="report this class"))
