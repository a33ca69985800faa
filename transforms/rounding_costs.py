"""What rounding the weights of each layer costs the results: which to keep in float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from menagerie.validation.compare import measure
from transforms.export.trace import WRAPPER_PREFIX
from transforms.graph.interpret import Recorder, output_nodes
from transforms.passes.layout_operators import is_layout
from zoo.records import LayerCost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram
    from torch.fx import Node

    from transforms.calibration import Range

_MOST_CARRIED = 8  # layers whose rounding is followed to the outputs
_MOST_PARAMETERS = 200_000_000  # beyond it each of those runs takes seconds
_STEPS = 255  # between the smallest and the largest of eight bits


def rounding_costs(
    before: ExportedProgram,
    after: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    *,
    integers: bool,
    ranges: Mapping[str, Range] | None = None,
) -> tuple[LayerCost, ...]:
    """How far rounding one layer at a time moves its result, and the outputs.

    Every rounded layer is computed twice from exact operands, with its weights whole and rounded.
    The eight that this moves most are then rounded one at a time, all others whole, and the
    program is run to its end; of a program with more than 200 million parameters none is.

    Args:
        before: with whole weights.
        after: the same graph with rounded ones.
        inputs: a golden case's, in order.
        integers: whether the other operand is rounded too.
        ranges: by parameter, of that operand; left out: what each slice of it holds.

    Returns:
        A cost for every rounded parameter that a product reads, the dearest first.
    """
    layers, names = changed_weights(before, after), before.graph_signature.inputs_to_parameters
    by_node = {node: (ranges or {}).get(names[node.name]) for node in layers}
    alone = _Alone(before, layers, by_node, integers=integers)
    exact = alone.record(inputs)
    order = sorted(layers, key=lambda node: alone.snr_db.get(node, math.inf))
    small = sum(p.numel() for p in before.parameters()) <= _MOST_PARAMETERS
    costs = []
    for place, node in enumerate(order):
        reached = None
        if small and place < _MOST_CARRIED:
            carried = _Carried(before, {node: layers[node]}, by_node, integers=integers)
            reached = _lowest(exact, carried.record(inputs))
        name = names[node.name].removeprefix(WRAPPER_PREFIX)
        result = alone.snr_db.get(node, math.inf)
        costs.append(LayerCost(parameter=name, result_snr_db=result, output_snr_db=reached))
    return tuple(sorted(costs, key=_dearest))


def to_eight_bits(
    operand: torch.Tensor, axes: tuple[int, ...], ends: Range | None = None
) -> torch.Tensor:
    """What eight bits keep of each slice: 255 steps from its smallest to its largest, nought exact.

    The same as `round_slices` of the runtime (`runtime/common/quantised.h`).

    Args:
        operand: float32.
        axes: those within a slice.
        ends: the smallest and the largest, instead of each slice's own; what is beyond is cut.
    """
    if ends is None:
        low = operand.amin(axes, keepdim=True).clamp(max=0)
        high = operand.amax(axes, keepdim=True).clamp(min=0)
    else:
        low, high = (torch.tensor(end, dtype=operand.dtype) for end in ends)
    scale = high / _STEPS - low / _STEPS
    step = torch.where(scale > 0, scale, 1)
    zero = (-low / step + 0.5).floor()
    whole = (operand / step + zero + 0.5).floor().clamp(0, _STEPS)
    return torch.where(scale > 0, (whole - zero) * step, 0)


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


class _Rounded(ProductRun):
    """Knows what a product gives with its weight rounded and, in integers, its other operand."""

    def __init__(
        self,
        program: ExportedProgram,
        layers: Mapping[Node, torch.Tensor],
        ranges: Mapping[Node, Range | None],
        *,
        integers: bool,
    ) -> None:
        super().__init__(program, layers)
        self._ranges, self._integers = ranges, integers

    def rounded(self, node: Node, weight: Node) -> Any:
        args, kwargs = self.arguments(node, weight)
        found = other_operand(node, weight) if self._integers else None
        if found is not None:
            other, axes = found
            operand = to_eight_bits(args[other], axes, self._ranges[self.origin[weight]])
            args = (*args[:other], operand, *args[other + 1 :])
        return node.target(*args, **kwargs)  # type: ignore[operator]


class _Alone(_Rounded):
    """Exact throughout; beside it each product once more with its weight rounded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.snr_db: dict[Node, float] = {}

    def product(self, node: Node, value: Any, weights: Sequence[Node]) -> Any:
        for weight in weights if isinstance(value, torch.Tensor) else []:
            layer, found = self.origin[weight], _snr_db(value, self.rounded(node, weight))
            self.snr_db[layer] = min(found, self.snr_db.get(layer, math.inf))
        return value


class _Carried(_Rounded):
    """With one layer rounded, to the end."""

    def product(self, node: Node, value: Any, weights: Sequence[Node]) -> Any:  # noqa: ARG002
        return self.rounded(node, weights[0])


def _lowest(exact: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> float:
    floats = [name for name, value in exact.items() if value.is_floating_point()]
    return min((_snr_db(exact[name], found[name]) for name in floats), default=math.inf)


def _snr_db(exact: torch.Tensor, found: torch.Tensor) -> float:
    return measure(exact.double().numpy(), found.double().numpy()).snr_db


def _dearest(cost: LayerCost) -> tuple[bool, float]:
    reached = cost.output_snr_db
    return (reached is None, cost.result_snr_db if reached is None else reached)


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
