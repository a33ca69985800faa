"""What rounding the weights of each layer costs the results: which to keep in float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from menagerie.validation.compare import measure
from transforms.export.trace import WRAPPER_PREFIX
from transforms.weight_products import ProductRun, changed_weights, other_operand
from zoo.records import LayerCost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram
    from torch.fx import Node

    from transforms.calibration import Range

__all__ = ["rounding_costs", "to_eight_bits"]

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

    The same as `round_slices` of the runtime (`runtime/common/integer_rows.h`).

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
