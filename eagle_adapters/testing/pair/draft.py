"""The draft of the pair: an EAGLE-3 head of the Llama type, trained on its own drafts (training-time test)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eagle_adapters.boundaries import Boundary
from eagle_adapters.testing.pair import corpus
from eagle_adapters.testing.pair.target import VOCAB, Progress, Recipe, descend

DRAFT_STEPS = 3
"""Steps that the training looks ahead, each fed with the draft's own state of the step before."""

DECAY = 0.8
"""Weight of a step's loss against that of the step before, as in EAGLE-3 (arXiv 2503.01840, SpecForge)."""


def config(hidden: int, vocabulary: int, ids: tuple[int, ...]) -> dict[str, Any]:
    """The config.json of the draft, in the form that SpecForge writes: ids are outputs of layers."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 2048,
        "vocab_size": VOCAB,
        "draft_vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "torch_dtype": "float32",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids), "use_aux_hidden_state": True},
    }


def frequent_ids(size: int) -> Any:
    """The `size` token ids that are most frequent in the training text, ascending: the draft's vocabulary."""
    import torch

    counts = torch.bincount(torch.frombuffer(bytearray(corpus.training_text()), dtype=torch.uint8), minlength=VOCAB)
    return counts.sort(descending=True, stable=True).indices[:size].sort().values


def train(folder: Path, target: Any, boundaries: tuple[Boundary, ...], recipe: Recipe, progress: Progress) -> Any:
    """The trained draft for `target`; `folder` holds its config.json."""
    import torch

    from eagle_adapters.drafts.reader import read_draft
    from eagle_adapters.speculation.drafter import Drafter

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        draft = Drafter(read_draft(folder / "config.json"))
    draft.draft_to_target = frequent_ids(draft.spec.draft_vocab_size)
    draft.embed_tokens.weight.data.copy_(target.get_input_embeddings().weight)
    draft.embed_tokens.requires_grad_(False)
    draft.lm_head.weight.data.copy_(target.get_output_embeddings().weight[draft.draft_to_target])
    stream = corpus.batches(corpus.training_text(), recipe.batch, recipe.length, recipe.seed)
    trained = [parameter for parameter in draft.parameters() if parameter.requires_grad]

    def loss() -> Any:
        ids = next(stream)
        with torch.no_grad():
            out = target(input_ids=ids, use_cache=False, output_hidden_states=True)
        # transformers gives boundary k at hidden_states[k] for every k below N, and N is not among the defaults
        return lookahead_loss(draft, ids, [out.hidden_states[b] for b in boundaries], out.logits)

    descend(trained, loss, recipe, "draft", progress)
    return draft.eval().requires_grad_(False)


def lookahead_loss(draft: Any, ids: Any, states: list[Any], logits: Any) -> Any:
    """The cross entropy of every draft step against the target's own distribution, averaged over all positions.

    Column t starts at state t with token t + 1; in step j it stands at position t + j and sees the states up to t and
    its own earlier steps, as it will when it drafts.
    """
    import torch

    from eagle_adapters.speculation.drafter import Memory

    columns = ids.shape[1] - 1 - DRAFT_STEPS
    causal = torch.ones(columns, columns, dtype=torch.bool).tril()
    own = torch.eye(columns, dtype=torch.bool)
    fed, memory = draft.combine([state[:, :columns] for state in states]), Memory()
    wanted = logits[..., draft.draft_to_target].log_softmax(dim=-1).exp()
    total, weight = 0.0, 0.0
    for step in range(DRAFT_STEPS):
        visible = torch.cat([causal, *[own] * step], dim=-1)[None]
        positions = (torch.arange(columns) + step)[None]
        out, fed = draft(ids[:, 1 + step : 1 + step + columns], fed, positions, visible, memory)
        scores = draft.logits(out).log_softmax(dim=-1)
        label = wanted[:, 1 + step : 1 + step + columns]
        total = total - DECAY**step * (label * scores).sum(dim=-1).mean()
        weight += DECAY**step
    return total / weight


def save(draft: Any, folder: Path) -> None:
    """Write the weights in the layout of SpecForge; embeddings stay the target's, as engines share them."""
    import torch
    from safetensors.torch import save_file

    from eagle_adapters.drafts.keys import Layout, write

    ids = draft.draft_to_target
    known = torch.zeros(VOCAB, dtype=torch.bool)
    known[ids] = True
    weights = {
        write(name, Layout.MIDLAYER): tensor.contiguous()
        for name, tensor in draft.state_dict().items()
        if name != "embed_tokens.weight"
    }
    weights |= {"d2t": ids - torch.arange(len(ids)), "t2d": known}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_config(folder: Path, fields: dict[str, Any]) -> None:
    """Write config.json."""
    (folder / "config.json").write_text(json.dumps(fields, indent=1) + "\n", "utf-8")
