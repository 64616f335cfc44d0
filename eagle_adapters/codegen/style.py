"""How each engine wants captured states spelled: the only place where generated text differs between engines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """The wording of one engine.

    Attributes:
        engine: `vllm` or `sglang`.
        attribute: attribute of the decoder that holds the boundaries to capture; an empty sequence captures nothing.
        states: local variable that collects the states, in ascending order of boundary.
        relay: whether states of earlier pipeline ranks travel in the tensors handed to the next rank, through the
            decoder's `pack_local_aux_hidden_states` and `collect_remote_aux_hidden_states`.
    """

    engine: str
    attribute: str
    states: str = "aux_hidden_states"
    relay: bool = False


VLLM = Style("vllm", "aux_hidden_state_layers", relay=True)
"""vllm 0.32.0, model_executor/models/interfaces.py `EagleModelMixin`, written out so that a snapshot can be taken."""

SGLANG = Style("sglang", "layers_to_capture")
"""sglang 0.5.23, models/llama.py; `layers_to_capture` holds boundaries here."""
