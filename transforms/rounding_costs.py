"""What rounding the weights of each layer costs the results: which to keep in float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from transforms.export import WRAPPER_PREFIX
from transforms.interpret import output_nodes, placeholder_values
from transforms.passes.layout_operators import is_layout
from zoo.records import LayerCost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram

__all__ = ["rounding_costs", "to_eight_bits"]

aten = torch.ops.aten

_MOST_CARRIED = 8  # layers whose rounding is followed to the outputs
_MOST_PARAMETERS = 200_000_000  # beyond it each of those runs takes seconds
_STEPS = 255  # between the smallest and the largest of eight bits
_ROWS = frozenset({aten.linear.default, aten.mm.default, aten.addmm.default, aten.matmul.default})
_IMAGES = frozenset({
    aten.convolution.default, aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
    aten.conv1d.padding, aten.conv2d.padding,
})  # fmt: skip


def rounding_costs(
    before: ExportedProgram,
    after: ExportedProgram,
    inputs: Sequence[torch.Tensor],
    *,
    integers: bool,
) -> tuple[LayerCost, ...]:
    """How far rounding one layer at a time moves its result, and the outputs.

    Every rounded layer is computed twice from exact operands, with its weights whole and rounded.
    The eight that this moves most are then rounded one at a time, all others whole, and the
    program is run to its end; of a program with more than 200 million parameters none is.

    Args:
        before: with whole weights.
        after: the same graph with rounded ones.
        inputs: a golden case's, in order.
        integers: whether the other operand is rounded too, as precision `int8` does; left as they
            are here are operands of convolutions in groups.

    Returns:
        A cost for every rounded parameter that a product reads, the dearest first.
    """
    layers = _layers(before, after)
    alone = _Alone(before, layers, integers=integers)
    exact = alone.outputs(before, inputs)
    order = sorted(layers, key=lambda node: alone.snr_db.get(node, math.inf))
    small = sum(p.numel() for p in before.parameters()) <= _MOST_PARAMETERS
    costs = []
    for place, node in enumerate(order):
        reached = None
        if small and place < _MOST_CARRIED:
            carried = _Carried(before, {node: layers[node]}, integers=integers)
            reached = _lowest(exact, carried.outputs(before, inputs))
        name = before.graph_signature.inputs_to_parameters[node.name].removeprefix(WRAPPER_PREFIX)
        result = alone.snr_db.get(node, math.inf)
        costs.append(LayerCost(parameter=name, result_snr_db=result, output_snr_db=reached))
    return tuple(sorted(costs, key=_dearest))


def to_eight_bits(operand: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    """What eight bits keep of each slice: 255 steps from its smallest to its largest, nought exact.

    The same as `round_slices` of the runtime (`runtime/common/integer_rows.h`).

    Args:
        operand: float32.
        axes: those within a slice.
    """
    low = operand.amin(axes, keepdim=True).clamp(max=0)
    high = operand.amax(axes, keepdim=True).clamp(min=0)
    scale = high / _STEPS - low / _STEPS
    step = torch.where(scale > 0, scale, 1)
    zero = (-low / step + 0.5).floor()
    whole = (operand / step + zero + 0.5).floor().clamp(0, _STEPS)
    return torch.where(scale > 0, (whole - zero) * step, 0)


def _layers(before: ExportedProgram, after: ExportedProgram) -> dict[Node, torch.Tensor]:
    """The rounded tensor behind each placeholder of `before` whose weight `after` has rounded."""
    parameters = before.graph_signature.inputs_to_parameters
    rounded = {
        name: after.state_dict[name]
        for name in after.graph_signature.inputs_to_parameters.values()
        if name in before.state_dict and after.state_dict[name] is not before.state_dict[name]
    }
    return {
        node: rounded[parameters[node.name]]
        for node in before.graph.nodes
        if node.op == "placeholder" and parameters.get(node.name) in rounded
    }


class _Run(Interpreter):
    """Runs a program in eager and follows rounded weights through what only rearranges them."""

    def __init__(
        self, program: ExportedProgram, layers: Mapping[Node, torch.Tensor], *, integers: bool
    ) -> None:
        super().__init__(GraphModule(program.graph_module, program.graph))
        self._layers, self._integers = layers, integers
        self._rounded: dict[Node, Any] = {}  # those weights, rearranged or not
        self._behind: dict[Node, Node] = {}  # the placeholder that each of them comes from

    def outputs(
        self, program: ExportedProgram, inputs: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        wanted = {node.name for node in output_nodes(program)}
        self._kept: dict[str, torch.Tensor] = {}
        self._wanted = wanted
        with torch.no_grad():
            self.run(*placeholder_values(program, inputs))
        return [self._kept[name] for name in sorted(wanted)]

    def run_node(self, n: Node) -> Any:
        value = self._value(n)
        if n.name in self._wanted:
            self._kept[n.name] = value.clone()
        return value

    def _value(self, node: Node) -> Any:
        exact = super().run_node(node)
        if node in self._layers:
            self._rounded[node], self._behind[node] = self._layers[node], node
            return exact
        sources = [each for each in node.all_input_nodes if each in self._rounded]
        if not sources:
            return exact
        if is_layout(node):
            self._rounded[node] = self._with_rounded(node, sources[0])
            self._behind[node] = self._behind[sources[0]]
            return exact
        return self.product(node, exact, sources)

    def product(self, node: Node, exact: Any, sources: list[Node]) -> Any:
        raise NotImplementedError

    def _with_rounded(self, node: Node, source: Node) -> Any:
        """The node's result with one weight rounded and, in integers, the other operand too."""

        def operand(each: Node) -> Any:
            return self._rounded[each] if each is source else self.env[each]

        args = torch.fx.map_arg(node.args, operand)
        kwargs = torch.fx.map_arg(node.kwargs, operand)
        if self._integers and not is_layout(node):
            args = _other_rounded(node, source, args)
        return node.target(*args, **kwargs)  # type: ignore[operator]


class _Alone(_Run):
    """Exact throughout; beside it each product once more with its weight rounded."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.snr_db: dict[Node, float] = {}

    def product(self, node: Node, exact: Any, sources: list[Node]) -> Any:
        for source in sources if isinstance(exact, torch.Tensor) else []:
            layer, found = self._behind[source], _snr_db(exact, self._with_rounded(node, source))
            self.snr_db[layer] = min(found, self.snr_db.get(layer, math.inf))
        return exact


class _Carried(_Run):
    """With one layer rounded, to the end."""

    def product(self, node: Node, exact: Any, sources: list[Node]) -> Any:  # noqa: ARG002
        return self._with_rounded(node, sources[0])


def _other_rounded(node: Node, source: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with that operand in eight bits which meets the weight `source`."""
    where = (1, 2) if node.target is aten.addmm.default else (0, 1)
    other = next((i for i in where if node.args[i] is not source), where[0])
    axes: tuple[int, ...]
    if node.target in _ROWS:
        axes = (-1,) if other < where[1] else (-2,)
    elif node.target in _IMAGES and not _in_groups(node):
        axes = tuple(range(1, args[0].dim()))
    else:
        return args
    return (*args[:other], to_eight_bits(args[other], axes), *args[other + 1 :])


def _in_groups(node: Node) -> bool:
    channels = node.args[0].meta["val"].shape[1]  # type: ignore[union-attr]
    return bool(node.args[1].meta["val"].shape[1] != channels)  # type: ignore[union-attr]


def _lowest(exact: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    floats = [pair for pair in zip(exact, found, strict=True) if pair[0].is_floating_point()]
    return min((_snr_db(*pair) for pair in floats), default=math.inf)


def _snr_db(exact: torch.Tensor, found: torch.Tensor) -> float:
    """20 log10(norm of `exact` / norm of the error), of the elements that are finite."""
    finite = exact.isfinite() & found.isfinite()
    signal = float(exact[finite].double().norm())
    noise = float((exact[finite].double() - found[finite].double()).norm())
    if noise == 0:
        return math.inf
    return -math.inf if signal == 0 else 20 * math.log10(signal / noise)


def _dearest(cost: LayerCost) -> tuple[bool, float]:
    reached = cost.output_snr_db
    return (reached is None, cost.result_snr_db if reached is None else reached)
