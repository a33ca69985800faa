"""Join linear layers that read the same rows into one product, with their weights stacked.

The queries, keys and values of an attention are such layers. Joined, they need one dispatch and
read their input once.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.schemas import bound_arguments
from transforms.passes.lay_out_weights import let_views_copy

aten = torch.ops.aten

_MATRIX = 2


class JoinLinearLayers(GraphPass):
    """Replaces the linear layers of one input with one, where each alone reads its weight.

    It runs after `fuse_epilogues`: a layer with a fused epilogue is not joined.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Join the layers of each input."""
        by_input: defaultdict[tuple[Node, bool], list[Node]] = defaultdict(list)
        for node in editor.calls(aten.linear.default):
            given = bound_arguments(node)
            own = _is_own(editor, given["weight"]) and _is_own(editor, given["bias"])
            if own and fake_value(given["weight"]).dim() == _MATRIX:  # one row lacks an axis
                by_input[given["input"], given["bias"] is None].append(node)
        joined = [layers for layers in by_input.values() if len(layers) > 1]
        for layers in joined:
            journal.changed(f"joined {', '.join(node.name for node in layers)}")
            _join(editor, layers)
        if joined:
            let_views_copy(editor)  # slices of a row are not contiguous


def _is_own(editor: ProgramEditor, weight: Node | None) -> bool:
    """Return whether a weight is missing, or a constant that only one call reads."""
    return weight is None or (editor.constant(weight) is not None and len(weight.users) == 1)


def _join(editor: ProgramEditor, layers: list[Node]) -> None:
    first = bound_arguments(layers[0])
    weight = _stacked(editor, [bound_arguments(node)["weight"] for node in layers])
    biases = [bound_arguments(node)["bias"] for node in layers]
    bias = None if first["bias"] is None else _stacked(editor, biases)
    whole = editor.call(aten.linear.default, first["input"], weight, bias, like=layers[0])
    begin = 0
    for node in layers:
        end = begin + fake_value(node).shape[-1]
        editor.replace(node, editor.call(aten.slice.Tensor, whole, -1, begin, end, like=node))
        begin = end


def _stacked(editor: ProgramEditor, weights: list[Node]) -> Node:
    values = [editor.constant(weight) for weight in weights]
    rows = torch.cat([value.detach() for value in values if value is not None])
    return editor.add_constant(f"{editor.constant_name(weights[0])}_and_more", rows)
