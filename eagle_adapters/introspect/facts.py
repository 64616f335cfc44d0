"""Find the parts around a decoder, given the chain to it: embedding, head, final norm, logits path, capture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eagle_adapters.introspect.anatomy import Fact, Number
from eagle_adapters.introspect.nodes import Child, Node
from eagle_adapters.introspect.words import says_other

CAPTURES = ("_maybe_add_hidden_state", "layers_to_capture", "aux_hidden_state_layers")
"""Names in a forward that captures on request: vllm 0.32.0 `EagleModelMixin`, sglang 0.5.23 `layers_to_capture`."""

HIDDEN_SIZE = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")

_TOKEN_EMBEDDINGS = (
    "embed_tokens",
    "wte",
    "word_embeddings",
    "tok_embeddings",
    "token_embedding",
    "token_embeddings",
    "tok_embedding",
    "embed_in",
    "word_embedding",
    "shared",
    "w",
)
_EMBEDDING_GROUPS = ("embeddings", "embedding", "embed", "emb")
_NOT_TOKENS = (
    *("pos", "rot", "rope", "patch", "time", "type", "tile", "class", "segment", "per_layer", "perlayer", "norm"),
    *("vision", "visual", "image", "video", "audio", "speech", "speaker", "codec", "identity"),
)
_HEADS = (
    "lm_head",
    "embed_out",
    "output_layer",
    "lm_output",
    "output_projection",
    "logits_head",
    "proj_out",
    "lm_loss",
    "output",
    "head",
)
_NORMS = (
    *("norm", "final_layernorm", "final_layer_norm", "ln_f", "norm_f", "final_norm", "ln_out", "layer_norm"),
    *("layernorm", "output_norm", "norm_out", "ln_final", "post_norm", "last_norm", "embedding_norm"),
)
_NOT_FINAL = ("emb", "input", "pre", "first", "hc_")


@dataclass(frozen=True, slots=True)
class Step:
    """A node on the way from the target: its path from the target, where it was found, other classes it may have."""

    path: str
    node: Node
    where: str
    others: tuple[str, ...] = ()


def join(path: str, name: str) -> str:
    """The dotted path of a child."""
    return f"{path}.{name}" if path else name


def _named(children: Sequence[Child], names: Sequence[str]) -> Iterator[Child]:
    by_name = {child.name: child for child in children}
    return (by_name[name] for name in names if name in by_name)


def _fact(step: Step, *children: Child) -> Fact:
    path = step.path
    for child in children:
        path = join(path, child.name)
    return Fact(path, children[-1].where, children[-1].node.class_name)


def embedding_of(step: Step) -> tuple[Fact, Node] | None:
    """The token embedding that this very node holds, also one level down (`embeddings.word_embeddings`)."""
    children = step.node.children()
    for child in _named(children, _TOKEN_EMBEDDINGS):
        return _fact(step, child), child.node
    for child in _named(children, _EMBEDDING_GROUPS):
        for inner in _named(child.node.children(), _TOKEN_EMBEDDINGS):
            return _fact(step, child, inner), inner.node
        if not child.node.children() and _is_embedding(child):
            return _fact(step, child), child.node
    for child in children:
        if not child.node.children() and _is_embedding(child):
            return _fact(step, child), child.node
    return None


def _is_embedding(child: Child) -> bool:
    kind = child.node.class_name.rpartition(":")[2].lower()
    text = f"{child.name.lower()} {kind}"
    return kind.endswith(("embedding", "embeddings")) and not any(word in text for word in _NOT_TOKENS)


def find_embedding(chain: Sequence[Step]) -> tuple[Fact, Node] | None:
    """The embedding nearest to the decoder, by name and class, else what `get_input_embeddings()` gives."""
    for step in reversed(chain):
        if found := embedding_of(step):
            return found
    return _given(chain, "get_input_embeddings")


def _given(chain: Sequence[Step], method: str) -> tuple[Fact, Node] | None:
    for step in reversed(chain):
        node = step.node.returned(method)
        if node is None:
            continue
        for owner in reversed(chain):
            for child in owner.node.children():
                if child.node.key == node.key:
                    return _fact(owner, child), node
    return None


def head_of(step: Step) -> Fact | None:
    """The output head that this very node holds."""
    for child in _named(step.node.children(), _HEADS):
        return _fact(step, child)
    return None


def find_head(chain: Sequence[Step]) -> Fact | None:
    """The output head nearest to the decoder, by name, else what `get_output_embeddings()` gives."""
    for step in reversed(chain):
        if found := head_of(step):
            return found
    given = _given(chain, "get_output_embeddings")
    return given[0] if given else None


def find_final_norm(chain: Sequence[Step]) -> Fact | None:
    """The norm after the last layer: in the decoder, else in the module around it."""
    if chain[-1].node.dynamic:
        return None
    for step in reversed(chain[-2:]):
        children = step.node.children()
        for child in _named(children, _NORMS):
            return _fact(step, child)
        for child in children:
            name = child.name.lower()
            kind = child.node.class_name.rpartition(":")[2].lower()
            if "norm" in f"{name} {kind}" and not says_other(name) and not any(word in name for word in _NOT_FINAL):
                return _fact(step, child)
    return None


def find_logits(chain: Sequence[Step], head: Fact | None) -> Fact | None:
    """What turns the last state into logits: `compute_logits`, else `logits_processor`, else the head."""
    for step in chain:
        if where := step.node.method("compute_logits"):
            return Fact(join(step.path, "compute_logits"), where, step.node.class_name)
    for step in chain:
        for child in _named(step.node.children(), ("logits_processor",)):
            return _fact(step, child)
    return head


def find_capture(decoder: Step) -> Fact | None:
    """How the decoder's forward already captures states on request, or None."""
    where = decoder.node.uses(CAPTURES)
    return None if where is None else Fact(decoder.path, where, decoder.node.class_name)


def find_hidden_size(chain: Sequence[Step], embedding: Node | None) -> Number | None:
    """The width of the residual stream: from the config nearest to the decoder, else from the embedding."""
    for step in reversed(chain):
        if (number := step.node.number(HIDDEN_SIZE)) is not None:
            return Number(number.value, join(step.path, number.where))
    return embedding.width() if embedding is not None else None
