"""Recurrent layers for the CPU: a few steps are written out, longer sequences are a kernel's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._decomp import get_decompositions

from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import switched_off
from transforms.graph.record import origin
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch._ops import OpOverload
    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten

# The numbers by which aten::mkldnn_rnn_layer knows the kinds of layers (ideep::rnn_kind).
_MODES: dict[OpOverload, int] = {
    aten.rnn_relu.input: 0, aten.rnn_tanh.input: 1, aten.lstm.input: 2, aten.gru.input: 3,
}  # fmt: skip
_FEW_STEPS = 8  # a decoder takes one at a time; a step more is a loop and a product more to compile
_MOST_STEPS = 64  # of layers that the kernel does not know: two of so many compile for minutes
_KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class ExpandRecurrentLayers(GraphPass):
    """Replaces each LSTM, GRU and plain recurrent layer with what the CPU computes.

    Up to eight steps become products and gates, one after another, by torch's own decomposition:
    the code grows with them. Longer sequences, and those of any length, become one call of
    aten::mkldnn_rnn_layer for each layer and direction. (Inductor does so for LSTM alone; the
    runtime's kernel knows the other kinds too.)

    Raises:
        LoweringError: if a layer with projections, or of float64, takes more than 64 steps.
    """

    def requires(self, editor: ProgramEditor) -> None:
        """There is a kernel for each layer, or its steps are few."""
        for node in editor.calls(*_MODES):
            _check(editor.place, node)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Compute all layers otherwise, if there are any."""
        found = editor.calls(*_MODES)
        if not found:
            return
        editor.decompose({kind: functools.partial(_computed, kind) for kind in _MODES})
        for node in found:
            journal.changed(f"computed {node.name} by steps or kernels")


def _computed(operator: OpOverload, *arguments: Any) -> tuple[Tensor, ...]:
    """What replaces one call of `operator`, with its arguments and results."""
    sequence, state, weights, has_biases, layers, _, _, bidirectional, batch_first = arguments
    states = [state] if isinstance(state, torch.Tensor) else list(state)
    steps = sequence.shape[1 if batch_first else 0]
    few = isinstance(steps, int) and steps <= _FEW_STEPS
    if few or not _has_kernel(sequence, states):
        written_out: Callable[..., Any] = get_decompositions([operator])[operator]
        # With oneDNN on, torch's decomposition is a call of that kernel.
        with switched_off(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled):
            results: tuple[Tensor, ...] = written_out(*arguments)
        return results
    x = sequence.transpose(0, 1) if batch_first else sequence
    directions = 2 if bidirectional else 1
    group = 4 if has_biases else 2
    last: list[tuple[Tensor, Tensor]] = []
    for layer in range(layers):
        ways: list[Tensor] = []
        for direction in range(directions):
            at = layer * directions + direction
            matrices = list(weights[at * group : (at + 1) * group])
            begin = [values[at : at + 1] for values in (states[0], states[-1])]
            way, hidden, memory, _ = aten.mkldnn_rnn_layer(
                x, *matrices, *([] if has_biases else matrices), *begin, direction == 1, [],
                _MODES[operator], states[0].shape[2], 1, has_biases, False, False, False,
            )  # fmt: skip
            ways.append(way)
            last.append((hidden, memory))
        x = torch.cat(ways, 2) if bidirectional else ways[0]
    ends = [torch.cat(values) for values in zip(*last, strict=True)][: len(states)]
    return (x.transpose(0, 1) if batch_first else x, *ends)


def _has_kernel(sequence: Tensor, states: Sequence[Tensor]) -> bool:
    """Whether the kernel computes it; projections show in a state narrower than a cell."""
    return sequence.dtype in _KERNEL_DTYPES and states[0].shape[2] == states[-1].shape[2]


def _check(place: str, node: Node) -> None:
    sequence, state, batch_first = node.args[0], node.args[1], node.args[8]
    value: Tensor = sequence.meta["val"]  # type: ignore[union-attr]
    states = [n.meta["val"] for n in (state if isinstance(state, (list, tuple)) else [state])]  # type: ignore[union-attr]
    steps = value.shape[1 if batch_first else 0]
    if _has_kernel(value, states) or (isinstance(steps, int) and steps <= _MOST_STEPS):
        return
    kind = f"of {str(value.dtype).removeprefix('torch.')}"
    if value.dtype in _KERNEL_DTYPES:
        kind = "with projections (proj_size)"
    raise LoweringError(
        place,
        f"node {node.name}, {origin(node)}, is a recurrent layer {kind} over {steps} steps, for "
        f"which there is no kernel, and written out it would compile for hours",
        f"Call it on at most {_MOST_STEPS} steps at a time and pass its state on, or use a layer "
        "without projections in float32",
    )
