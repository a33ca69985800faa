"""Recurrent layers: a few steps are unrolled, longer sequences use a kernel or a loop."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._higher_order_ops.while_loop import while_loop_op
from torch._ops import OpOverload
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from transforms.graph.editor import ProgramEditor
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import one_layer_by, switched_off

aten = torch.ops.aten

# The numbers by which aten::mkldnn_rnn_layer knows the kinds of layers (ideep::rnn_kind).
_MODES: dict[OpOverload, int] = {
    aten.rnn_relu.input: 0, aten.rnn_tanh.input: 1, aten.lstm.input: 2, aten.gru.input: 3,
}  # fmt: skip
_FEW_STEPS = 8  # a decoder takes one at a time; each adds a loop and a product to compile
_MOST_STEPS = 64  # without a kernel: two layers of so many steps compile for minutes
_KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class ExpandRecurrentLayers(GraphPass):
    """Replaces each LSTM, GRU and plain recurrent layer with what the CPU computes.

    Up to eight steps become products and gates, one after another, by torch's own decomposition;
    the code grows with their number. Longer sequences, and those of any length, become one call of
    aten::mkldnn_rnn_layer for each layer and direction. Layers that it does not support, with
    projections or in float64, become loops if they have more than 64 steps.
    """

    _has_kernels = True

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Replace all recurrent layers, if there are any."""
        found = editor.calls(*_MODES)
        if not found:
            return
        editor.decompose({k: functools.partial(_computed, k, self._has_kernels) for k in _MODES})
        for node in found:
            journal.changed(f"computed {node.name} by steps, kernels or loops")


class LoopOverRecurrentLayers(ExpandRecurrentLayers):
    """Does so for a device without a kernel of such layers: more than 64 steps are a loop."""

    name = "loop_over_recurrent_layers"
    summary = "LSTM, GRU and RNN become steps written out, or loops over more than 64"
    _has_kernels = False


def _computed(kind: OpOverload, has_kernels: bool, *arguments: Any) -> tuple[Tensor, ...]:
    """Return the replacement of a call of a layer, with the same arguments and results."""
    sequence, state, *_, batch_first = arguments
    states, steps = tree_leaves(state), sequence.shape[1 if batch_first else 0]
    known = sequence.dtype in _KERNEL_DTYPES and states[0].shape[2] == states[-1].shape[2]
    by_kernel = has_kernels and known  # with projections, a state is narrower than a cell
    layer: Callable[..., Any] = operator.call
    if not (isinstance(steps, int) and steps <= (_FEW_STEPS if by_kernel else _MOST_STEPS)):
        layer = functools.partial(_by_kernel, _MODES[kind]) if by_kernel else _by_loop
    written_out: Callable[..., tuple[Tensor, ...]] = get_decompositions([kind])[kind]
    # With oneDNN on, torch's decomposition of an LSTM calls that kernel.
    mkldnn = switched_off(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled)
    with one_layer_by(layer), mkldnn:
        return written_out(*arguments)


def _by_kernel(  # noqa: PLR0917 - torch's own list
    mode: int, _: object, x: Tensor, state: Any, weights: Sequence[Tensor], has_biases: bool,
    reverse: bool = False, **__: Any,
) -> tuple[Tensor, Any]:  # fmt: skip
    """Compute a layer in one direction by the runtime's kernel, which needs dense tensors."""
    begin, structure = tree_flatten(state)
    hidden, memory = (value.unsqueeze(0).contiguous() for value in (begin[0], begin[-1]))
    y, *end = aten.mkldnn_rnn_layer(
        x.contiguous(), *weights, *([] if has_biases else weights), hidden, memory, reverse, [],
        mode, hidden.shape[2], 1, has_biases, False, False, False,
    )  # fmt: skip
    return y, tree_unflatten([value.squeeze(0) for value in end[: len(begin)]], structure)


def _by_loop(
    written_out: Callable[..., Any], x: Tensor, state: Any, weights: Sequence[Tensor], *how: Any,
    reverse: bool = False, **cell: Any,
) -> tuple[Tensor, Any]:  # fmt: skip
    """Run a layer in one direction by a loop; each step is decomposed as a sequence of one."""
    begin, structure = tree_flatten(state)
    x = x.flip(0) if reverse else x
    places = torch.arange(x.shape[0], device=x.device)[:, None, None]
    y = x.new_zeros(x.shape[0], *begin[0].shape)

    def step(place: Tensor, y: Tensor, *values: Any) -> tuple[Tensor, ...]:
        before = tree_unflatten(values[: len(begin)], structure)
        x, places, *own = values[len(begin) :]
        now, after = written_out(x.index_select(0, place), before, own, *how, **cell)
        return place + 1, torch.where(places == place, now, y), *tree_leaves(after)

    def goes_on(place: Tensor, y: Tensor, *_: Any) -> Tensor:
        return (place < y.shape[0]).all()

    first = (places.new_zeros(1), y, *(value.clone() for value in begin))
    _, y, *end = while_loop_op(goes_on, step, first, (x, places, *weights))
    return y.flip(0) if reverse else y, tree_unflatten(end, structure)
