"""Move the calls after a product or a convolution into the kernel that computes it.

A kernel of the runtime finishes each element in single precision before it rounds and stores it
(runtime/metal/kernels/finish.h). So an activation, a factor or a residual sum needs no dispatch of
its own, and no round trip of the result through memory.

The kernels are implemented in `runtime/metal/epilogue.cpp`; this module declares them, and converts
torch's calls to the steps of such a kernel.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.schemas import bound_arguments, declare
from transforms.graph.traced import write
from transforms.passes.merge_common_subexpressions import MergeCommonSubexpressions

aten, _operators = torch.ops.aten, torch.ops.menagerie

MOST_STEPS = 4  # runtime/metal/kernels/steps.h

_STEPS = "int[] steps, float[] low, float[] high, Tensor? other"
_PRODUCT = f"finished_product(Tensor a, Tensor b, Tensor? bias, {_STEPS}) -> Tensor"
_CONVOLUTION = (
    "finished_convolution(Tensor input, Tensor? factor, Tensor weight, Tensor? bias, int[] stride,"
    f" int[] padding, int[] dilation, int groups, {_STEPS}) -> Tensor"
)
_SQUEEZE = (
    "squeeze(Tensor images, Tensor down, Tensor? down_bias, Tensor up, Tensor? up_bias,"
    " int[] steps, float[] low, float[] high, int first) -> Tensor"
)
# One threadgroup pools all channels of an image and reads the first weight.
_MOST_CHANNELS, _MOST_ELEMENTS, _MOST_WEIGHTS = 2048, 1 << 16, 1 << 17
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.convolution.default)
_MEANS = (aten.adaptive_avg_pool2d.default, aten.mean.dim)
_PRODUCTS = (aten.linear.default, aten.addmm.default, aten.mm.default)
_MATRIX = 2
_IMAGE = 4  # axes


class Step(enum.IntEnum):
    """An operation on each element x, with its numbers `low` and `high`.

    Its values match runtime/metal/kernels/steps.h.
    """

    RELU = 0
    LEAKY_RELU = 1  # low: the slope below zero
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
    getattr(aten, step.name.lower()).default: step
    for step in (Step.RELU, Step.SILU, Step.SIGMOID, Step.TANH, Step.HARDSWISH, Step.HARDSIGMOID)
}


@dataclass(frozen=True)
class Call:
    """A step with its numbers, and the operand that it reads beside the product, if any."""

    step: Step
    low: float = 0.0
    high: float = 0.0
    other: Node | None = None


def calls_of(node: Node, value: Node) -> list[Call] | None:
    """Return the steps from its operand `value` to `node`, of equal shape and dtype; else None."""
    if node.op != "call_function" or not isinstance(fake_value(node), Tensor):
        return None
    made, before = fake_value(node), fake_value(value)
    if made.dtype != before.dtype or not surely_equal(made.shape, before.shape):
        return None
    if node.target in _PLAIN:
        return [Call(_PLAIN[node.target])]
    read = _READERS.get(node.target)
    return None if read is None else read(bound_arguments(node), value)


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
    if given["self"] is not value or not _are_numbers(divisor):
        return None
    if abs(math.frexp(divisor)[0]) != 0.5:  # noqa: PLR2004 - 41 times the reciprocal of 41 is not 1
        return None
    return [Call(Step.AFFINE, 1 / divisor)]


_READERS: Mapping[Any, Callable[[Mapping[str, Any], Node], list[Call] | None]] = {
    aten.leaky_relu.default: lambda given, _: [
        Call(Step.LEAKY_RELU, float(given["negative_slope"]))
    ],
    aten.gelu.default: lambda given, _: [
        Call(Step.GELU_TANH if given["approximate"] == "tanh" else Step.GELU)
    ],
    aten.hardtanh.default: lambda given, _: [
        Call(Step.CLAMP, float(given["min_val"]), float(given["max_val"]))
    ],
    aten.relu6.default: lambda *_: [Call(Step.CLAMP, 0.0, 6.0)],
    aten.clamp.default: _clamp,
    aten.add.Tensor: _add,
    aten.sub.Tensor: _subtract,
    aten.mul.Tensor: _multiply,
    aten.div.Tensor: _divide,
}


def _are_numbers(*values: object) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _beside(call: Call, value: Node) -> list[Call] | None:
    """Return the call if its operand is another tensor of its dtype; a factor may be a mask."""
    if not isinstance(call.other, Node) or call.other is value:
        return None
    operand = fake_value(call.other)
    known = {fake_value(value).dtype} | ({torch.bool} if call.step is Step.MULTIPLY else set())
    return [call] if isinstance(operand, Tensor) and operand.dtype in known else None


def _with_steps(
    value: Tensor, steps: Sequence[int], low: Sequence[float], high: Sequence[float],
    other: Tensor | None,
) -> Tensor:  # fmt: skip
    """Apply the steps in order in single precision, rounding once; no step changes a shape."""
    if value.is_meta:
        return value
    made = value.float()
    for step, a, b in zip(steps, low, high, strict=True):
        numbers = () if Step(step) in _PLAIN.values() else (a, b, other)
        made = _COMPUTED[Step(step)](made, *numbers)
    return made.to(value.dtype)


def _product(a: Tensor, b: Tensor, bias: Tensor | None, *finish: Any) -> Tensor:
    return _with_steps(a @ b if bias is None or a.is_meta else a @ b + bias, *finish)


def _convolution(  # noqa: PLR0917
    input: Tensor, factor: Tensor | None, weight: Tensor, bias: Tensor | None,  # noqa: A002
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    *finish: Any,
) -> Tensor:  # fmt: skip
    images = input if factor is None else input * factor
    if weight.shape[1] * groups * 2 == images.shape[1]:  # gated and masked
        images = _functional.glu(images, 1).masked_fill(finish[-1].bool(), 0)
    window = (stride, padding, dilation, False, [0] * len(stride), groups)
    return _with_steps(aten.convolution.default(images, weight, bias, *window), *finish)


_functional = torch.nn.functional
# Each takes x, the step's two numbers and the operand beside it.
_COMPUTED: Mapping[Step, Callable[..., Tensor]] = {
    **{step: operator for operator, step in _PLAIN.items()},
    Step.LEAKY_RELU: lambda x, a, *_: _functional.leaky_relu(x, a),
    Step.CLAMP: lambda x, a, b, _: x.clamp(a, b),
    Step.GELU: lambda x, *_: _functional.gelu(x),
    Step.GELU_TANH: lambda x, *_: _functional.gelu(x, approximate="tanh"),
    Step.AFFINE: lambda x, a, b, _: x * a + b,
    Step.ADD: lambda x, a, _, other: x + a * other,
    Step.MULTIPLY: lambda x, _, __, other: x * other,
}


def _squeeze(x: Tensor, *operands: Any) -> Tensor:
    down, down_bias, up, up_bias, steps, low, high, first = operands
    x = x.mean((2, 3), keepdim=True)
    for weight, bias, own in ((down, down_bias, slice(first)), (up, up_bias, slice(first, None))):
        x = _with_steps(aten.conv2d.default(x, weight, bias), steps[own], low[own], high[own], None)
    return x


declare(_PRODUCT, _product)
declare(_CONVOLUTION, _convolution)
declare(_SQUEEZE, _squeeze)


class _Read(NamedTuple):
    """The operands that a convolution reads in place of its input; none for a product."""

    images: Node | None = None
    factor: Node | None = None  # of the images' channels
    mask: Node | None = None  # of gated images: where they count as zero


@dataclass
class _Chain:
    """A product and the calls after it, each the only user of the one before."""

    product: Node
    read: _Read
    nodes: list[Node] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def last(self) -> Node:
        return self.nodes[-1] if self.nodes else self.product

    @property
    def other(self) -> Node | None:
        """The one operand beside the product's own that the calls read."""
        return next((c.other for c in self.calls if c.other is not None), self.read.mask)


class FuseEpilogues(GraphPass):
    """Replaces a product or a convolution and the elementwise calls that follow it with one kernel.

    A chain ends if a result has other readers, another shape or dtype, or a second operand.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Make the kernels of products and convolutions compute the calls after them."""
        for node in editor.calls(*_CONVOLUTIONS, *_PRODUCTS):
            if not _is_taken(node):
                continue
            chain = _chain(node)
            if chain.nodes or _has_more(chain):
                steps = ", ".join(call.step.name.lower() for call in chain.calls)
                journal.changed(f"{node.name} ends with {steps or 'its bias or factor'}")
                _fuse(editor, chain)
        for up in editor.calls(_operators.finished_convolution.default):
            _squeeze_with(editor, up, journal)
        MergeCommonSubexpressions().rewrite(editor, journal)  # masks that follow several products


def _is_taken(product: Node) -> bool:
    """Return whether the runtime's kernel supports all arguments of the call."""
    given = bound_arguments(product)
    plain = given.get("alpha", 1) == 1 and given.get("beta", 1) == 1
    made = fake_value(product)
    if product.target in _CONVOLUTIONS:  # an unbatched image has other axes
        batched = fake_value(given["input"]).dim() == fake_value(given["weight"]).dim()
        plain = batched and not given.get("transposed", False)
    elif product.target is aten.linear.default:  # a weight of one row lacks an axis
        plain = fake_value(given["weight"]).dim() == _MATRIX
    return plain and made.dtype in _DTYPES and made.dim() >= _MATRIX


def _has_more(chain: _Chain) -> bool:
    """Return whether a convolution has a bias or channel factors: each a kernel by Inductor."""
    if chain.read.images is None:
        return False
    return bound_arguments(chain.product)["bias"] is not None or chain.read.factor is not None


def _chain(product: Node) -> _Chain:
    chain = _Chain(product, _read(product) if product.target in _CONVOLUTIONS else _Read())
    while len(chain.last.users) == 1:
        (user,) = chain.last.users
        calls = calls_of(user, chain.last)
        if calls is None or len(chain.calls) + len(calls) > MOST_STEPS:
            break
        others = [call.other for call in calls if call.other is not None]
        if others and (chain.other is not None or not _is_reached(others[0], product)):
            break
        chain.nodes.append(user)
        chain.calls += calls
    return chain


def _is_reached(other: Node, product: Node) -> bool:
    """Return whether a kernel can read an operand by strides along the axes of its result.

    A convolution's result has all axes. A linear layer's is one matrix with merged leading axes.
    """
    if product.target in _CONVOLUTIONS:
        return True
    read, made = fake_value(other), fake_value(product)
    is_matrix = surely_equal(made.shape[:-2], [1] * (made.dim() - _MATRIX))
    return read.dim() <= 1 or surely_equal(read.shape, made.shape) or is_matrix


def _fuse(editor: ProgramEditor, chain: _Chain) -> None:
    product, last, given = chain.product, chain.last, bound_arguments(chain.product)
    last.meta |= {key: value for key, value in product.meta.items() if key != "val"}  # its origin
    numbers = zip(*((int(c.step), c.low, c.high) for c in chain.calls), strict=True)
    steps = [*map(list, numbers)] or [[], [], []]
    images, factor, _ = chain.read

    def finished(given: Mapping[str, Any], images: Any, factor: Any, other: Any) -> Any:
        """Call the kernel; a linear layer of more axes becomes a matrix product between views."""
        if other is not None and other.dtype is torch.bool:  # a mask becomes zeros and ones
            other = aten._to_copy.default(other, dtype=fake_value(product).dtype)
        if images is not None:
            window = [given[name] for name in ("stride", "padding", "dilation", "groups")]
            operands = (images, factor, given["weight"], given["bias"], *window, *steps, other)
            return _operators.finished_convolution.default(*operands)
        if "weight" in given:
            rows, weight, bias = given["input"], given["weight"].t(), given["bias"]
        else:
            rows, weight = given.get("mat1", given["self"]), given["mat2"]
            bias = given["self"] if "mat1" in given else None
        sizes = (*rows.shape[:-1], weight.shape[-1])
        if len(sizes) == _MATRIX:
            return _operators.finished_product.default(rows, weight, bias, *steps, other)
        if other is not None and other.dim() > 1:
            other = other.expand(sizes).flatten(0, -2)
        rows = rows.flatten(0, -2)
        return _operators.finished_product.default(rows, weight, bias, *steps, other).view(sizes)

    made = write(editor, finished, given, images, factor, chain.other, like=last)
    editor.replace(last, made)
    for node in reversed([product, *chain.nodes][:-1]):
        editor.graph.erase_node(node)
    made.name = product.name


def _squeeze_with(editor: ProgramEditor, up: Node, journal: Journal) -> None:
    """Merge two small products of channel means, and the means if they are few, into one call."""
    last = bound_arguments(up)
    down: Node = last["input"]
    if not _is_small(up) or not _is_small(down) or len(down.users) > 1:
        return
    first = bound_arguments(down)
    steps = [first[key] + last[key] for key in ("steps", "low", "high")]
    if len(steps[0]) > MOST_STEPS:
        return
    images: Node = first["input"]
    if images.target in _MEANS and len(images.users) == 1 and _is_small_image(images):
        (images,) = images.all_input_nodes
    weights = (each[key] for each in (first, last) for key in ("weight", "bias"))
    operands = (images, *weights, *steps, len(first["steps"]))
    editor.replace(up, editor.call(_operators.squeeze.default, *operands, like=up))
    journal.changed(f"{up.name} is computed with {down.name}")


def _is_small_image(means: Node) -> bool:
    """Return whether the means are of whole images that one threadgroup can pool."""
    pooled, dtype = fake_value(means.all_input_nodes[0]), fake_value(means).dtype
    elements = math.prod(pooled.shape[1:])  # numel() would fix the sizes
    few = isinstance(elements, int) and elements <= _MOST_ELEMENTS and pooled.dim() == _IMAGE
    return (
        few
        and pooled.dtype == dtype
        and surely_equal(pooled.shape[:2], fake_value(means).shape[:2])
    )


def _is_small(node: Node) -> bool:
    """Return whether it is a pointwise convolution of 1 x 1 images, with few weights."""
    if node.target is not _operators.finished_convolution.default or not _is_pointwise(node):
        return False
    given = bound_arguments(node)
    weight = fake_value(given["weight"])
    few = weight.numel() <= _MOST_WEIGHTS and max(weight.shape) <= _MOST_CHANNELS
    plain = few and given["factor"] is given["other"] is None
    return plain and surely_equal(fake_value(node).shape[2:], (1, 1))


def _read(convolution: Node) -> _Read:
    """Return the operands of a convolution: images (N, C, H, W), and a factor (N or 1, C, 1, 1).

    Only a pointwise convolution takes factors: it reads and so multiplies each element about once.
    The multiplied images are then never written to memory.
    """
    given = bound_arguments(convolution)
    if (gated := _gated(convolution)) is not None:
        return gated
    product: Node = given["input"]
    if product.target is not aten.mul.Tensor or not _is_pointwise(convolution):
        return _Read(product)
    if set(product.users) != {convolution}:
        return _Read(product)
    sides = [bound_arguments(product)[name] for name in ("self", "other")]
    for images, factor in (sides, sides[::-1]):
        if _is_of_channels(factor, images):
            return _Read(images, factor)
    return _Read(product)


def _gated(convolution: Node) -> _Read | None:
    """Return the images of a depthwise convolution of gated and masked sequences, and the mask."""
    given = bound_arguments(convolution)
    filled: Node = given["input"]
    if filled.target is not aten.masked_fill.Scalar or len(filled.users) > 1:
        return None
    fill = bound_arguments(filled)
    gate, weight = fill["self"], fake_value(given["weight"])
    # The kernel's window; as wide a result as its input, since the mask lies along both.
    window = [given[name] for name in ("stride", "padding", "dilation")] == [[1], [4], [1]]
    whole = surely_equal(fake_value(filled).shape, fake_value(gate).shape) and fill["value"] == 0
    is_gate = gate.target is aten.glu.default and len(gate.users) == 1
    known = window and tuple(weight.shape) == (given["groups"], 1, 9)
    if not (whole and is_gate and known and bound_arguments(gate)["dim"] in {1, -2}):
        return None
    return _Read(bound_arguments(gate)["self"], mask=fill["mask"])


def _is_pointwise(convolution: Node) -> bool:
    given = bound_arguments(convolution)
    weight = fake_value(given["weight"])
    plain = (given["stride"], given["padding"], given["groups"]) == ([1, 1], [0, 0], 1)
    return plain and weight.dim() == _IMAGE and tuple(weight.shape[2:]) == (1, 1)


def _is_of_channels(factor: Node | float, images: Node | float) -> bool:
    if not isinstance(factor, Node) or not isinstance(images, torch.fx.Node):
        return False
    of_channels, of_images = fake_value(factor), fake_value(images)
    if of_channels.dtype != of_images.dtype or of_images.dim() != _IMAGE:
        return False
    batch, channels, *places = of_images.shape
    shared = any(surely_equal(of_channels.shape, (n, channels, 1, 1)) for n in (1, batch))
    return shared and not surely_equal(places, (1, 1))
