"""The kernels of products and convolutions with what follows them, as Metal's runtime has them.

Their bodies are `runtime/metal/epilogue.cpp`; here they are declared, and a call of torch's is read
as the steps that such a kernel takes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from transforms.graph.editor import fake_value
from transforms.graph.guards import surely_equal
from transforms.graph.schemas import bound_arguments, declare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor
    from torch.fx import Node

aten = torch.ops.aten

MOST_STEPS = 4  # runtime/metal/epilogue.h

_STEPS = "int[] steps, float[] low, float[] high, Tensor? other"
_PRODUCT = f"finished_product(Tensor a, Tensor b, Tensor? bias, {_STEPS}) -> Tensor"
_CONVOLUTION = (
    "finished_convolution(Tensor input, Tensor? factor, Tensor weight, Tensor? bias, int[] stride,"
    f" int[] padding, int[] dilation, int groups, {_STEPS}) -> Tensor"
)


class Step(enum.IntEnum):
    """What is done to each element x, with its numbers `low` and `high`.

    Numbered as in runtime/metal/kernels/finish.h, which says what each computes.
    """

    RELU = 0
    LEAKY_RELU = 1  # low: the slope below nought
    CLAMP = 2  # from low to high
    GELU = 3
    GELU_TANH = 4
    SILU = 5
    SIGMOID = 6
    TANH = 7
    HARDSWISH = 8
    HARDSIGMOID = 9
    AFFINE = 10  # x low + high
    ADD = 11  # x + low other
    MULTIPLY = 12  # x other


_PLAIN: Mapping[Any, Step] = {
    aten.relu.default: Step.RELU,
    aten.silu.default: Step.SILU,
    aten.sigmoid.default: Step.SIGMOID,
    aten.tanh.default: Step.TANH,
    aten.hardswish.default: Step.HARDSWISH,
    aten.hardsigmoid.default: Step.HARDSIGMOID,
}


@dataclass(frozen=True)
class Call:
    """A step with its numbers, and the operand that it reads beside the product, if any."""

    step: Step
    low: float = 0.0
    high: float = 0.0
    other: Node | None = None


def calls_of(node: Node, value: Node) -> list[Call] | None:
    """The steps that make `node` of `value`, one of its operands.

    Returns:
        None where no steps do, or the result has another shape or dtype than `value`.
    """
    if node.op != "call_function" or not isinstance(fake_value(node), torch.Tensor):
        return None
    made, before = fake_value(node), fake_value(value)
    if made.dtype != before.dtype or not surely_equal(made.shape, before.shape):
        return None
    if node.target in _PLAIN:
        return [Call(_PLAIN[node.target])]
    read = _READERS.get(node.target)
    return None if read is None else read(bound_arguments(node), value)


def _leaky_relu(given: Mapping[str, Any], _: Node) -> list[Call]:
    return [Call(Step.LEAKY_RELU, float(given["negative_slope"]))]


def _gelu(given: Mapping[str, Any], _: Node) -> list[Call]:
    return [Call(Step.GELU_TANH if given["approximate"] == "tanh" else Step.GELU)]


def _hardtanh(given: Mapping[str, Any], _: Node) -> list[Call]:
    return [Call(Step.CLAMP, float(given["min_val"]), float(given["max_val"]))]


def _relu6(_: Mapping[str, Any], __: Node) -> list[Call]:
    return [Call(Step.CLAMP, 0.0, 6.0)]


def _clamp(given: Mapping[str, Any], _: Node) -> list[Call] | None:
    low = -torch.inf if given["min"] is None else given["min"]
    high = torch.inf if given["max"] is None else given["max"]
    return [Call(Step.CLAMP, float(low), float(high))] if _are_numbers(low, high) else None


def _add(given: Mapping[str, Any], value: Node) -> list[Call] | None:
    left, right, factor = given["self"], given["other"], given["alpha"]
    if not _are_numbers(factor):
        return None
    if _are_numbers(right):
        return [Call(Step.AFFINE, 1.0, float(right) * float(factor))]
    if left is value:
        return _beside(Call(Step.ADD, float(factor), other=right), value)
    summed = _beside(Call(Step.ADD, 1.0, other=left), value)
    if summed is None or factor == 1:
        return summed
    return [Call(Step.AFFINE, float(factor)), *summed]


def _subtract(given: Mapping[str, Any], value: Node) -> list[Call] | None:
    factor = given["alpha"]
    return _add({**given, "alpha": -factor}, value) if _are_numbers(factor) else None


def _multiply(given: Mapping[str, Any], value: Node) -> list[Call] | None:
    other = given["other"] if given["self"] is value else given["self"]
    if _are_numbers(other):
        return [Call(Step.AFFINE, float(other))]
    return _beside(Call(Step.MULTIPLY, other=other), value)


def _divide(given: Mapping[str, Any], value: Node) -> list[Call] | None:
    divisor = given["other"]
    if given["self"] is not value or not _are_numbers(divisor) or divisor == 0:
        return None
    return [Call(Step.AFFINE, 1 / divisor)]


_READERS: Mapping[Any, Callable[[Mapping[str, Any], Node], list[Call] | None]] = {
    aten.leaky_relu.default: _leaky_relu,
    aten.gelu.default: _gelu,
    aten.hardtanh.default: _hardtanh,
    aten.relu6.default: _relu6,
    aten.clamp.default: _clamp,
    aten.add.Tensor: _add,
    aten.sub.Tensor: _subtract,
    aten.mul.Tensor: _multiply,
    aten.div.Tensor: _divide,
}


def _are_numbers(*values: object) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _beside(call: Call, value: Node) -> list[Call] | None:
    """The call, if its operand is another tensor of the value's dtype; a factor may be a mask."""
    if not isinstance(call.other, torch.fx.Node) or call.other is value:
        return None
    operand = fake_value(call.other)
    known = {fake_value(value).dtype} | ({torch.bool} if call.step is Step.MULTIPLY else set())
    return [call] if isinstance(operand, torch.Tensor) and operand.dtype in known else None


def _product_shape(a: Tensor, b: Tensor, *_: object) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _convolution_shape(  # noqa: PLR0917
    input: Tensor,  # noqa: A002
    _factor: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *_: object,
) -> Tensor:
    plain = torch.ops.aten.convolution.default(
        input, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups
    )
    return input.new_empty(plain.shape)


def _finished(
    value: Tensor,
    steps: Sequence[int],
    low: Sequence[float],
    high: Sequence[float],
    other: Tensor | None,
) -> Tensor:
    """The steps one after another in single precision, rounded once."""
    made = value.float()
    for step, a, b in zip(steps, low, high, strict=True):
        made = _COMPUTED[Step(step)](made, a, b, other)
    return made.to(value.dtype)


def _product(  # noqa: PLR0917
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    steps: Sequence[int],
    low: Sequence[float],
    high: Sequence[float],
    other: Tensor | None,
) -> Tensor:
    made = a @ b if bias is None else a @ b + bias
    return _finished(made, steps, low, high, other)


def _convolution(  # noqa: PLR0917
    input: Tensor,  # noqa: A002
    factor: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *finish: Any,
) -> Tensor:
    images = input if factor is None else input * factor
    window = (stride, padding, dilation, False, [0] * len(stride), groups)
    return _finished(aten.convolution.default(images, weight, bias, *window), *finish)


def _operand(other: Tensor | None) -> Tensor:
    assert other is not None  # noqa: S101 - a step that reads one has one
    return other


_functional = torch.nn.functional
_COMPUTED: Mapping[Step, Callable[[Tensor, float, float, Tensor | None], Tensor]] = {
    Step.RELU: lambda x, *_: x.relu(),
    Step.LEAKY_RELU: lambda x, a, *_: _functional.leaky_relu(x, a),
    Step.CLAMP: lambda x, a, b, _: x.clamp(a, b),
    Step.GELU: lambda x, *_: _functional.gelu(x),
    Step.GELU_TANH: lambda x, *_: _functional.gelu(x, approximate="tanh"),
    Step.SILU: lambda x, *_: _functional.silu(x),
    Step.SIGMOID: lambda x, *_: x.sigmoid(),
    Step.TANH: lambda x, *_: x.tanh(),
    Step.HARDSWISH: lambda x, *_: _functional.hardswish(x),
    Step.HARDSIGMOID: lambda x, *_: _functional.hardsigmoid(x),
    Step.AFFINE: lambda x, a, b, _: x * a + b,
    Step.ADD: lambda x, a, _, other: x + a * _operand(other),
    Step.MULTIPLY: lambda x, _, __, other: x * _operand(other),
}

declare(_PRODUCT, _product_shape, _product)
declare(_CONVOLUTION, _convolution_shape, _convolution)
