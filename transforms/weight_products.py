"""Runs a program in eager and finds the products that weights come to, and what they meet there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from transforms.graph.interpret import Recorder, output_nodes
from transforms.passes.layout_operators import is_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["ProductRun", "changed_weights", "other_operand"]

aten = torch.ops.aten

_ROWS = frozenset({aten.linear.default, aten.mm.default, aten.addmm.default, aten.matmul.default})
_IMAGES = frozenset({
    aten.convolution.default, aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
    aten.conv1d.padding, aten.conv2d.padding,
})  # fmt: skip


def changed_weights(before: ExportedProgram, after: ExportedProgram) -> dict[Node, torch.Tensor]:
    """By placeholder of `before`: what `after`, the same graph, has in place of a parameter."""
    parameters = before.graph_signature.inputs_to_parameters
    changed = {
        name: after.state_dict[name]
        for name in after.graph_signature.inputs_to_parameters.values()
        if name in before.state_dict and after.state_dict[name] is not before.state_dict[name]
    }
    return {
        node: changed[parameters[node.name]]
        for node in before.graph.nodes
        if node.op == "placeholder" and parameters.get(node.name) in changed
    }


def other_operand(product: Node, weight: Node) -> tuple[int, tuple[int, ...]] | None:
    """Which argument meets a weight, and the axes of its slices; see `Precision.INT8`.

    None where the runtime does not round it: of convolutions in groups or transposed, of matrices
    that are no linear layer's, of other operators. The slices are rows, or whole images.
    """
    if product.target in _IMAGES and product.args[1] is weight:
        image, kernel = _value(product, 0), _value(product, 1)
        in_groups = kernel.shape[1] != image.shape[1]
        is_transposed = product.target is aten.convolution.default and product.args[6]
        return None if in_groups or is_transposed else (0, tuple(range(1, image.dim())))
    if product.target is aten.linear.default and product.args[1] is weight:
        return 0, (-1,)
    if product.target not in _ROWS:
        return None
    right = 2 if product.target is aten.addmm.default else 1
    if product.args[right] is not weight or not _lies_in_columns(_value(product, right)):
        return None
    if product.target is aten.addmm.default and _value(product, 0).dim() != 1:
        return None
    return right - 1, (-1,)


def _value(product: Node, place: int) -> torch.Tensor:
    value: torch.Tensor = product.args[place].meta["val"]  # type: ignore[union-attr]
    return value


def _lies_in_columns(matrix: torch.Tensor) -> bool:
    """Whether it is the transposed of rows: those of a linear layer's weight."""
    return matrix.dim() == 2 and matrix.stride() == (1, matrix.shape[0])  # noqa: PLR2004


class ProductRun(Recorder):
    """Runs a program and calls `product` for each operator that reads one of some weights.

    Operators that only rearrange a weight belong to it: `weights` has what they make of another
    tensor in its place.

    Args:
        program: whose graph is run; its weights and buffers stay as they are.
        weights: by placeholder, a tensor that may stand in a weight's place.
    """

    def __init__(self, program: ExportedProgram, weights: Mapping[Node, torch.Tensor]) -> None:
        super().__init__(program, [node.name for node in output_nodes(program)])
        self.weights = dict(weights)
        self.origin = {node: node for node in weights}  # the placeholder behind each

    def product(self, node: Node, value: Any, weights: Sequence[Node]) -> Any:
        """What the node is to give, which gives `value` and reads `weights`."""
        raise NotImplementedError

    def with_weight(self, node: Node, weight: Node) -> Any:
        """The node's result with the other tensor in a weight's place."""
        args, kwargs = self.arguments(node, weight)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def arguments(self, node: Node, weight: Node) -> tuple[Any, Any]:
        """Of a call with the other tensor in a weight's place."""

        def of(each: Node) -> Any:
            return self.weights[each] if each is weight else self.env[each]

        return torch.fx.map_arg(node.args, of), torch.fx.map_arg(node.kwargs, of)

    def compute(self, node: Node) -> Any:
        """A node's value, of a product what `product` says."""
        value = super().compute(node)
        weights = [each for each in node.all_input_nodes if each in self.weights]
        if not weights or node.op != "call_function":
            return value
        if not is_layout(node):
            return self.product(node, value, weights)
        self.weights[node] = self.with_weight(node, weights[0])
        self.origin[node] = self.origin[weights[0]]
        return value
