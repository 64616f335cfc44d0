"""Record the residual stream of a `transformers` decoder at chosen boundaries, in eager mode and under torch.compile.

Boundary b < N is read at the input of layer b, boundary N at the output of the last layer: both are before any final
norm, and anything a model adds between two layers (Qwen3-VL's deepstack features) is part of the state. The hooks are
put on once and stay silent until a capture is open, so that a model compiled after `wrap` has them in its graph. A
graph without an open capture is whole; with one it ends once more, after the decoder.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from eagle_adapters.boundaries import Boundary, check_boundaries, default_boundaries
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError, UsageError

_recorders: weakref.WeakKeyDictionary[nn.Module, Recorder] = weakref.WeakKeyDictionary()


class Recorder:
    """The hooks on one decoder. Silent until a capture opens it."""

    def __init__(self, decoder: nn.Module, layers: Sequence[nn.Module]) -> None:
        self.num_layers = len(layers)
        self.wanted: frozenset[int] = frozenset()
        self.steps: list[dict[int, Tensor]] = []
        self.step: dict[int, Tensor] | None = None
        self._handles = [
            decoder.register_forward_pre_hook(self._begin),
            decoder.register_forward_hook(self._end),
            *(
                layer.register_forward_pre_hook(self._entry_hook(layer, index), with_kwargs=True)
                for index, layer in enumerate(layers)
            ),
            layers[-1].register_forward_hook(self._exit_hook()),
        ]

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()

    # A step lasts from the decoder's entry to its exit. Gradient checkpointing runs the layers again in the backward
    # pass, outside of any step, and is therefore not recorded twice.
    def _begin(self, decoder: nn.Module, args: Any) -> None:
        self.step = {} if self.wanted else None

    def _end(self, decoder: nn.Module, args: Any, output: Any) -> None:
        if self.step is not None:
            if torch.compiler.is_compiling():
                _keep_outside_of_graph(self.steps, self.step)
            else:
                self.steps.append(self.step)
            self.step = None

    def _entry_hook(self, layer: nn.Module, boundary: int) -> Any:
        name = next(iter(inspect.signature(layer.forward).parameters), "hidden_states")

        def record_entry(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if self.step is not None and boundary in self.wanted:
                self.step[boundary] = _snapshot(args[0] if args else kwargs[name])

        return record_entry

    def _exit_hook(self) -> Any:
        boundary = self.num_layers

        def record_exit(module: nn.Module, args: Any, output: Any) -> None:
            if self.step is not None and boundary in self.wanted:
                self.step[boundary] = _snapshot(output[0] if isinstance(output, tuple) else output)

        return record_exit


def _keep_copies(steps: list[dict[int, Tensor]], step: dict[int, Tensor]) -> None:
    """Copy what a compiled forward recorded: its outputs may lie in memory that the next CUDA graph replay reuses."""
    steps.append({boundary: state.clone() for boundary, state in step.items()})


_keep_outside_of_graph = torch.compiler.disable(_keep_copies)


def _snapshot(state: Tensor) -> Tensor:
    if not isinstance(state, Tensor) or state.dim() != 3:
        shape = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
        raise AdaptationError(
            Diagnostic(
                "EA503",
                "the decoder layers do not carry one residual stream",
                expected="a tensor [batch, tokens, hidden] between the layers",
                found=str(shape),
                next_step="this architecture cannot be captured; see docs/errors.md",
            )
        )
    return state.detach().clone()


class Capture:
    """The states of every decoder forward that runs inside the context; keep it to read them afterwards.

    Args:
        recorder: the hooks on the decoder.
        boundaries: what to record.

    Attributes:
        boundaries: what is recorded, in the asked order.
    """

    def __init__(self, recorder: Recorder, boundaries: tuple[Boundary, ...]) -> None:
        self.boundaries = boundaries
        self._recorder = recorder
        self._steps: list[dict[int, Tensor]] = []

    def __enter__(self) -> Capture:
        if self._recorder.wanted:
            raise UsageError(
                Diagnostic(
                    "EA502",
                    "a capture of this model is open already",
                    found=f"boundaries {sorted(self._recorder.wanted)}",
                    next_step="ask for all boundaries in one capture, or close the first",
                )
            )
        self._recorder.wanted = frozenset(int(b) for b in self.boundaries)
        self._recorder.steps = self._steps
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.wanted = frozenset()
        self._recorder.steps = []
        self._recorder.step = None

    @property
    def steps(self) -> tuple[Mapping[int, Tensor], ...]:
        """One mapping boundary -> tensor [batch, tokens, hidden] for each forward of the decoder.

        Raises:
            AdaptationError: EA501, a forward ran but not every boundary passed, or none ran at all.
        """
        wanted = [int(b) for b in self.boundaries]
        short = [sorted(set(wanted) - step.keys()) for step in self._steps]
        if not self._steps or any(short):
            missing = next((m for m in short if m), wanted)
            raise AdaptationError(
                Diagnostic(
                    "EA501",
                    f"nothing was captured at boundaries {missing}",
                    expected=f"states at {wanted} from at least one forward",
                    found=f"{len(self._steps)} forwards of the decoder",
                    next_step="run the model inside the context; call eagle_adapters.wrap before torch.compile",
                )
            )
        return tuple({b: step[b] for b in wanted} for step in self._steps)

    def __getitem__(self, boundary: int) -> Tensor:
        """The states at one boundary over all steps: [batch, all tokens, hidden].

        Raises:
            AdaptationError: EA501, as `steps`.
            KeyError: this boundary was not asked for.
        """
        if boundary not in self.boundaries:
            raise KeyError(f"boundary {boundary} was not captured, only {[int(b) for b in self.boundaries]}")
        return torch.cat([step[boundary] for step in self.steps], dim=1)

    def __iter__(self) -> Any:
        return iter(self.boundaries)

    def __len__(self) -> int:
        return len(self._steps)


def attach(decoder: nn.Module, layers: nn.Module | Iterable[nn.Module]) -> Recorder:
    """The recorder of `decoder`; its hooks are put on at the first call."""
    recorder = _recorders.get(decoder)
    if recorder is None:
        recorder = _recorders[decoder] = Recorder(decoder, layer_list(layers))
    return recorder


def detach(decoder: nn.Module) -> None:
    """Take the hooks off `decoder`, if there are any."""
    recorder = _recorders.pop(decoder, None)
    if recorder is not None:
        recorder.remove()


def open_capture(decoder: nn.Module, layers: Any, boundaries: Sequence[int] | None) -> Capture:
    """A capture of `boundaries` (None: the defaults for this depth); what `eagle3_capture` returns.

    Raises:
        BoundaryError: EA001 out of 0..N, EA002 given twice, EA004 no defaults for so few layers.
    """
    recorder = attach(decoder, layers)
    n = recorder.num_layers
    return Capture(recorder, default_boundaries(n) if boundaries is None else check_boundaries(boundaries, n))


def layer_list(layers: Any) -> list[nn.Module]:
    """The layers in order, whether they are held in a list or a dict."""
    return list(layers.values() if hasattr(layers, "values") else layers)
