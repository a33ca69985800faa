"""Weights as integers of eight or four bits: the rounding, its groups and its costs.

The scheme is symmetric: q = clamp(round(w / s), -m, m) with m = 127 or 7, and w' = q s; some
numbers of a group are rounded the other way to keep the group's sum. The scale of each group of a
row's numbers is the group's largest magnitude over m, cut to bfloat16. So q s is exact in float32
(16 bits of 24), the largest magnitude is m s, and quantising w' again gives q and s: the writer of
a bundle need not know which weights were rounded. If a scale covers a whole row, products of the
row and another operand can be summed in integers: precisions `int8` and `int8-static`. The latter
is calibrated: samples give the range of the other operand of each rounded weight.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from menagerie.validation.compare import measure
from transforms.graph.callable import WRAPPER_PREFIX
from transforms.graph.editor import fake_value
from transforms.graph.interpret import Recorder, output_nodes
from transforms.graph.record import origin
from transforms.graph.schemas import CONVOLUTIONS
from transforms.passes.axes import is_layout
from zoo.errors import UsageError
from zoo.precision import Precision, WeightPrecision, is_called
from zoo.records import LayerCost

_UPPER_HALF = -(1 << 16)  # the bits of a float32 that bfloat16 keeps
_MOST_CARRIED = 8  # layers whose rounding is followed to the outputs
_MOST_PARAMETERS = 200_000_000  # above it, each of those runs takes seconds
_STEPS = 255  # from the smallest to the largest of eight bits


@dataclass(frozen=True)
class Scheme:
    """The number of bits per number, and how many numbers of a row share a scale."""

    bits: int  # 8 or 4
    group: int | None  # a row that is no multiple of it has one scale; None: every row has one

    @property
    def most(self) -> int:
        """The largest integer; the smallest is its negative."""
        return (1 << (self.bits - 1)) - 1


INTEGERS = {
    Precision.INT8: Scheme(bits=8, group=None),
    Precision.INT8_STATIC: Scheme(bits=8, group=None),
    Precision.INT8_WEIGHT_ONLY: Scheme(bits=8, group=128),
    Precision.INT4_WEIGHT_ONLY: Scheme(bits=4, group=32),
}


def scheme_of(kept: WeightPrecision) -> Scheme | None:
    """Return the rounding scheme of a weight precision; None if its weights are not integers."""
    scheme = INTEGERS.get(kept.precision)
    if scheme is None or kept.group is None:
        return scheme
    return replace(scheme, group=kept.group)


def with_second_names(
    keep: Iterable[str], before: Mapping[str, Any], after: Collection[str]
) -> list[str]:
    """Name the layers to keep as after the passes, which leave one name of a tied weight."""
    found = []
    for wanted in keep:
        names = [n for n in before if is_called(n, wanted)]
        gone = [before[n] for n in names if n not in after]
        found += [wanted] if not names or len(gone) < len(names) else []
        found += [n.removeprefix(WRAPPER_PREFIX) for n in after
                  if any(before.get(n) is each for each in gone)]  # fmt: skip
    return found


@dataclass(frozen=True)
class Quantised:
    """A weight of `shape`; its first axis gives the rows, and each row is flattened."""

    shape: tuple[int, ...]
    values: Tensor  # int8 (rows, columns)
    scales: Tensor  # bfloat16 (rows, groups); (rows,) if the scheme has no groups

    def wide(self) -> Tensor:
        """Return the float32 tensor that this represents."""
        values = self.values.reshape(*self.scales.shape, -1).float()
        return (values * self.scales.float()[..., None]).reshape(self.shape)

    def packed(self) -> Tensor:
        """Pack two values plus 8 per byte, the first in the lower half; odd rows get a zero."""
        shifted = (self.values + 8).to(torch.uint8)
        if shifted.shape[1] % 2:
            shifted = torch.nn.functional.pad(shifted, (0, 1))
        return shifted[:, 0::2] | (shifted[:, 1::2] << 4)


def quantised(weight: Tensor, scheme: Scheme) -> Quantised | None:
    """Round a float32 weight of two or more axes; None if it is empty or not finite."""
    if weight.numel() == 0 or not bool(torch.isfinite(weight).all()):
        return None
    rows = weight.detach().reshape(weight.shape[0], -1)
    columns = rows.shape[1]
    group = scheme.group or columns
    group = group if columns % group == 0 else columns
    grouped = rows.reshape(rows.shape[0], -1, group)
    scales = (grouped.abs().amax(-1) / scheme.most).contiguous()
    # Round towards zero, to a bfloat16 number.
    scales = (scales.view(torch.int32) & _UPPER_HALF).view(torch.float32)
    divisors = torch.where(scales == 0, torch.ones_like(scales), scales)[..., None]
    exact = torch.where(scales[..., None] == 0, torch.zeros_like(grouped), grouped / divisors)
    values = _balanced(exact, scheme.most).to(torch.int8).reshape(rows.shape)
    scales = scales[:, 0] if scheme.group is None else scales
    return Quantised(tuple(weight.shape), values, scales.bfloat16())


def _balanced(exact: Tensor, most: int) -> Tensor:
    """Return the nearest integers, some rounded the other way so that a group's sum stays.

    A layer's inputs have a mean, a large one after a norm or a ReLU, and an error of the sum shifts
    every output by it. The numbers nearest to a half go the other way, which costs least.
    """
    nearest = exact.round().clamp(-most, most)
    error = exact - nearest
    total = error.sum(-1, keepdim=True).round()
    up = total.sign()
    room = (nearest + up).abs() <= most
    urge = torch.where(room, error * up, torch.full_like(error, -1.0))
    rank = urge.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    return torch.where((rank < total.abs()) & room & (urge > 0), nearest + up, nearest)


Call = Sequence[Tensor]  # a tensor for each input, in order
Range = tuple[float, float]  # the smallest and the largest number, with zero between them


def rounding_costs(
    before: ExportedProgram,
    after: ExportedProgram,
    inputs: Sequence[Tensor],
    *,
    integers: bool,
    ranges: Mapping[str, Range] | None = None,
) -> tuple[LayerCost, ...]:
    """Measure how far rounding one layer at a time changes its result, and the outputs.

    Every rounded layer is computed twice from exact operands, with its exact weights (`before`) and
    its rounded ones (`after`, the same graph); with `integers` the other operand is rounded too, to
    its range by parameter, if it has one. Then the eight layers that change most are rounded one at
    a time, and the program is run to its end, unless it has more than 200 million parameters. The
    costs cover every rounded parameter that a product reads, the most expensive first.
    """
    layers, names = changed_weights(before, after), before.graph_signature.inputs_to_parameters
    by_node = {node: (ranges or {}).get(names[node.name]) for node in layers}
    snr_db = dict.fromkeys(layers, math.inf)

    def rounded(run: ProductRun, node: Node, weight: Node) -> Any:
        """Multiply with the weight rounded and, in integers, the other operand too."""
        args, kwargs = run.arguments(node, weight)
        if integers and (found := other_operand(node, weight)) is not None:
            other, axes = found
            operand = to_eight_bits(args[other], axes, by_node[run.origin[weight]])
            args = (*args[:other], operand, *args[other + 1 :])
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def alone(run: ProductRun, node: Node, value: Any, weights: Sequence[Node]) -> Any:
        """Return the exact value; also compute each product with its weight rounded."""
        for weight in weights if isinstance(value, Tensor) else []:
            layer, found = run.origin[weight], _snr_db(value, rounded(run, node, weight))
            snr_db[layer] = min(found, snr_db[layer])
        return value

    def carried(run: ProductRun, node: Node, _: Any, weights: Sequence[Node]) -> Any:
        """Return the product with one layer rounded, for a run to the end."""
        return rounded(run, node, weights[0])

    exact = ProductRun(before, layers, alone).record(inputs)
    small = sum(p.numel() for p in before.parameters()) <= _MOST_PARAMETERS
    costs = []
    for place, node in enumerate(sorted(layers, key=snr_db.__getitem__)):
        reached = None
        if small and place < _MOST_CARRIED:
            results = ProductRun(before, {node: layers[node]}, carried).record(inputs)
            pairs = ((value, results[n]) for n, value in exact.items() if value.is_floating_point())
            reached = min(itertools.starmap(_snr_db, pairs), default=math.inf)
        name = names[node.name].removeprefix(WRAPPER_PREFIX)
        costs.append(LayerCost(parameter=name, result_snr_db=snr_db[node], output_snr_db=reached))
    whole = [cost for cost in costs if cost.output_snr_db is None]
    costs = [cost for cost in costs if cost.output_snr_db is not None]
    costs.sort(key=lambda cost: cost.output_snr_db or 0.0)
    return (*costs, *sorted(whole, key=lambda cost: cost.result_snr_db))


def to_eight_bits(operand: Tensor, axes: tuple[int, ...], ends: Range | None = None) -> Tensor:
    """Return what eight bits keep of each slice: 255 steps from its smallest to its largest number.

    Zero is exact, as in `round_slices` of the runtime (`runtime/common/quantised.h`). `axes` are
    the axes within a slice; `ends` replace the range of each slice, and numbers beyond are clamped.
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
    """A run of a program that calls `product` for each operator that reads one of some weights.

    It receives the run, the node, its value and the weights that it reads, and returns the value to
    use. `weights` maps placeholders to tensors that may replace weights. Operators that only
    rearrange a weight belong to it: `weights` also has their results on the other tensor.
    """

    def __init__(
        self,
        program: ExportedProgram,
        weights: Mapping[Node, Tensor],
        product: Callable[[ProductRun, Node, Any, Sequence[Node]], Any],
    ) -> None:
        super().__init__(program, [node.name for node in output_nodes(program)])
        self._product = product
        self.weights = dict(weights)
        self.origin = {node: node for node in weights}  # the placeholder behind each weight

    def arguments(self, node: Node, weight: Node) -> tuple[Any, Any]:
        """Return a call's arguments with the other tensor in the weight's place."""

        def of(each: Node) -> Any:
            return self.weights[each] if each is weight else self.env[each]

        return torch.fx.map_arg(node.args, of), torch.fx.map_arg(node.kwargs, of)

    def compute(self, node: Node) -> Any:
        """Return a node's value; for a product, the value that `product` returns."""
        value = super().compute(node)
        weights = [each for each in node.all_input_nodes if each in self.weights]
        if not weights or node.op != "call_function":
            return value
        if not is_layout(node):
            return self._product(self, node, value, weights)
        args, kwargs = self.arguments(node, weights[0])
        self.weights[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        self.origin[node] = self.origin[weights[0]]
        return value


def _snr_db(exact: Tensor, found: Tensor) -> float:
    return measure(exact.double().numpy(), found.double().numpy()).snr_db


aten = torch.ops.aten

_ROWS = frozenset({aten.linear.default, aten.mm.default, aten.addmm.default, aten.matmul.default})


def changed_weights(before: ExportedProgram, after: ExportedProgram) -> dict[Node, Tensor]:
    """Return, by placeholder of `before`, the tensors that replace parameters in `after`."""
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
    """Return the argument that meets a weight, and the axes of its slices; see `Precision.INT8`.

    Return None where the runtime does not round it: for grouped or transposed convolutions, for
    matrices other than a linear layer's, and for other operators. Slices are rows or whole images.
    """
    given: Any = product.args
    if product.target in CONVOLUTIONS and given[1] is weight:
        image, kernel = fake_value(given[0]), fake_value(weight)
        in_groups = kernel.shape[1] != image.shape[1]
        is_transposed = product.target is aten.convolution.default and given[6]
        return None if in_groups or is_transposed else (0, tuple(range(1, image.dim())))
    if product.target is aten.linear.default and given[1] is weight:
        return 0, (-1,)
    if product.target not in _ROWS:
        return None
    right = 2 if product.target is aten.addmm.default else 1
    matrix = fake_value(given[right])
    if given[right] is not weight or matrix.stride() != (1, matrix.shape[0]):
        return None  # only the transpose of row-major weights is a linear layer's
    if product.target is aten.addmm.default and fake_value(given[0]).dim() != 1:
        return None
    return right - 1, (-1,)


def operand_ranges(
    before: ExportedProgram, after: ExportedProgram, calls: Iterable[Call]
) -> dict[str, Range]:
    """Return the range of each rounded weight's other operand in products, over all float32 calls.

    Only parameters whose products the runtime computes in integers are included. `after` is the
    same graph as `before` with rounded weights. Raise UsageError if a sample produces numbers that
    are not finite, or does not fit.
    """
    ranges, names = dict[str, Range](), before.graph_signature.inputs_to_parameters

    def watched(run: ProductRun, node: Node, value: Any, weights: Sequence[Node]) -> Any:
        for weight in weights:
            if (found := other_operand(node, weight)) is None:
                continue
            operand = run.arguments(node, weight)[0][found[0]]
            if operand.numel() == 0:
                continue
            if not bool(operand.isfinite().all()):
                fact = "a sample makes numbers that are not finite"
                raise UsageError(f"calibration of {origin(node)}", fact, "Leave the sample out")
            name = names[run.origin[weight].name]
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = min(low, float(operand.min())), max(high, float(operand.max()))
        return value

    run = ProductRun(before, changed_weights(before, after), watched)
    for number, inputs in enumerate(calls):
        try:
            run.record(inputs)
        except (RuntimeError, IndexError) as error:
            said = str(error).partition("\n")[0]
            fact = f"sample {number} fails: {said}"
            raise UsageError("calibration", fact, "Leave it out") from error
    return ranges


def fitting_calls(place: str, calls: Iterable[Call], example: Call) -> Iterator[Call]:
    """Yield the calls; raise UsageError if number, dtypes or axes differ from an example's."""
    wanted = [_form(tensor) for tensor in example]
    for call in calls:
        is_list = isinstance(call, (list, tuple))
        if not is_list or [_form(each) for each in call] != wanted:
            found = f"({', '.join(_form(e) for e in call)})" if is_list else type(call).__name__
            fact = f"a sample is {found}, the program takes ({', '.join(wanted)})"
            raise UsageError(place, fact, "Give for each sample a tuple of all inputs, in order")
        yield [tensor.contiguous() for tensor in call]


def _form(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{value.dtype} of {value.dim()} axes".removeprefix("torch.")
