"""What follows a product or a convolution moves into the kernel that computes it.

A kernel of the runtime's finishes each element in single precision before it rounds and stores it
(runtime/metal/kernels/finish.h). So an activation, a factor or a residual sum costs no dispatch of
its own, and no trip of the result through memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from transforms.graph.aliasing import is_written_between
from transforms.graph.editor import fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import surely_equal
from transforms.graph.schemas import bound_arguments
from transforms.passes.metal.epilogue_steps import MOST_STEPS, Call, calls_of

if TYPE_CHECKING:
    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_CONVOLUTIONS = (aten.conv1d.default, aten.conv2d.default, aten.convolution.default)
_PRODUCTS = (aten.linear.default, aten.addmm.default, aten.mm.default)
_MATRIX = 2
_IMAGE = 4  # axes


@dataclass
class _Chain:
    """A product and the calls that follow it, each the only user of the one before."""

    product: Node
    nodes: list[Node] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def last(self) -> Node:
        return self.nodes[-1] if self.nodes else self.product

    @property
    def other(self) -> Node | None:
        """The one operand beside the product's own that the calls read."""
        return next((call.other for call in self.calls if call.other is not None), None)


class FuseEpilogues(GraphPass):
    """Replaces a product or a convolution and the elementwise calls that follow it with one kernel.

    A chain ends where a result has other readers, another shape or dtype, or a second operand.
    """

    name = "fuse_epilogues"
    summary = "Replaces f(g(Product(x))) with one kernel, and bias and factors with its operands"

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Have the kernels of products and convolutions compute what follows them."""
        for node in editor.calls(*_CONVOLUTIONS, *_PRODUCTS):
            if not _is_taken(node):
                continue
            chain = _chain(node)
            if is_written_between(node, chain.last):
                journal.refused(node, "what follows it is written in place")
                chain = _Chain(node)
            if chain.nodes or _has_bias(node) or _has_factor(node):
                steps = ", ".join(call.step.name.lower() for call in chain.calls)
                journal.changed(f"{node.name} ends with {steps or 'its bias or factor'}")
                _fuse(editor, chain)
        _share_masks(editor)


def _is_taken(product: Node) -> bool:
    """Whether the runtime's kernel computes all that the call says."""
    given = bound_arguments(product)
    plain = given.get("alpha", 1) == 1 and given.get("beta", 1) == 1
    made = fake_value(product)
    if product.target in _CONVOLUTIONS:  # of one image without a batch, its axes are others
        batched = fake_value(given["input"]).dim() == fake_value(given["weight"]).dim()
        plain = batched and not given.get("transposed", False)
    elif product.target is aten.linear.default:  # by a weight of one row, an axis is missing
        plain = fake_value(given["weight"]).dim() == _MATRIX
    return plain and made.dtype in _DTYPES and made.dim() >= _MATRIX


def _has_bias(product: Node) -> bool:
    """Whether Inductor would add a convolution's bias by a kernel of its own."""
    return product.target in _CONVOLUTIONS and bound_arguments(product)["bias"] is not None


def _has_factor(product: Node) -> bool:
    """Whether the channels of a convolution's images are multiplied before."""
    return product.target in _CONVOLUTIONS and _input_and_factor(product)[1] is not None


def _chain(product: Node) -> _Chain:
    chain = _Chain(product)
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
    """Whether a kernel can read an operand by strides along its own result's axes.

    A convolution's has them all. A linear layer's result is one matrix, its leading axes in one.
    """
    if product.target in _CONVOLUTIONS:
        return True
    read, made = fake_value(other), fake_value(product)
    is_matrix = surely_equal(made.shape[:-2], [1] * (made.dim() - _MATRIX))
    return read.dim() <= 1 or surely_equal(read.shape, made.shape) or is_matrix


def _fuse(editor: ProgramEditor, chain: _Chain) -> None:
    with editor.graph.inserting_before(chain.last):
        is_image = chain.product.target in _CONVOLUTIONS
        made = (_finished_convolution if is_image else _finished_product)(editor, chain)
    editor.replace(chain.last, made)
    for node in reversed([chain.product, *chain.nodes][:-1]):
        editor.graph.erase_node(node)
    made.name = chain.product.name


def _finished_convolution(editor: ProgramEditor, chain: _Chain) -> Node:
    given = bound_arguments(chain.product)
    window = [list(given[name]) for name in ("stride", "padding", "dilation")]
    images, factor = _input_and_factor(chain.product)
    return editor.call(
        torch.ops.menagerie.finished_convolution.default,
        images, factor, given["weight"], given["bias"], *window, given["groups"],
        *_steps(chain), _other(editor, chain), like=chain.product,
    )  # fmt: skip


def _finished_product(editor: ProgramEditor, chain: _Chain) -> Node:
    """The product of two matrices, between views of a linear layer whose input has more axes."""
    product, given = chain.product, bound_arguments(chain.product)
    other = _other(editor, chain)
    if product.target is aten.linear.default:
        rows, bias = given["input"], given["bias"]
        weight = editor.call(aten.t.default, given["weight"], like=product)
    else:
        rows, bias = (given["mat1"], given["self"]) if "mat1" in given else (given["self"], None)
        weight = given["mat2"]
    sizes = [*_sizes(editor, rows)[:-1], fake_value(product).shape[-1]]
    if len(sizes) > _MATRIX:
        rows = editor.call(aten.flatten.using_ints, rows, 0, -2, like=product)
        if other is not None and fake_value(other).dim() > 1:
            spread = editor.call(aten.expand.default, other, sizes, like=product)
            other = editor.call(aten.flatten.using_ints, spread, 0, -2, like=product)
    made = editor.call(
        torch.ops.menagerie.finished_product.default, rows, weight, bias, *_steps(chain), other,
        like=product,
    )  # fmt: skip
    return (
        made if len(sizes) == _MATRIX else editor.call(aten.view.default, made, sizes, like=product)
    )


def _sizes(editor: ProgramEditor, node: Node) -> list[int | Node]:
    """A tensor's sizes, those that change by calls that ask for them."""
    return [
        size if isinstance(size, int) else editor.call(aten.sym_size.int, node, axis, like=node)
        for axis, size in enumerate(fake_value(node).shape)
    ]


def _other(editor: ProgramEditor, chain: _Chain) -> Node | None:
    """The operand that the calls read, in the product's dtype: a mask as noughts and ones."""
    other, dtype = chain.other, fake_value(chain.product).dtype
    if other is None or fake_value(other).dtype == dtype:
        return other
    return editor.call(aten._to_copy.default, other, dtype=dtype, like=chain.product)


def _share_masks(editor: ProgramEditor) -> None:
    """Convert a mask once that follows several products."""
    seen: dict[tuple[Any, Any], Node] = {}
    for node in editor.calls(aten._to_copy.default):
        if any(user.target not in _finished() for user in node.users):
            continue
        key = node.args[0], node.kwargs.get("dtype")
        first = seen.setdefault(key, node)
        if first is not node and is_written_between(first, node):
            seen[key] = node
        elif first is not node:
            editor.replace(node, first)


def _finished() -> tuple[Any, ...]:
    ours = torch.ops.menagerie
    return ours.finished_product.default, ours.finished_convolution.default


def _steps(chain: _Chain) -> tuple[list[int], list[float], list[float]]:
    calls = chain.calls
    return [int(c.step) for c in calls], [c.low for c in calls], [c.high for c in calls]


def _input_and_factor(convolution: Node) -> tuple[Node, Node | None]:
    """What a convolution reads, and the factor of each of its channels, or none.

    Only a pointwise convolution takes factors: it reads each element about once, and so each is
    multiplied about once. The images themselves are then never written multiplied.

    Args:
        convolution: a call of one of torch's convolutions.

    Returns:
        The images (N, C, H, W), and the factor (N or 1, C, 1, 1) that they are multiplied by.
    """
    given = bound_arguments(convolution)
    product: Node = given["input"]
    if product.target is not aten.mul.Tensor or not _is_pointwise(convolution):
        return product, None
    if set(product.users) != {convolution} or is_written_between(product, convolution):
        return product, None
    factors = bound_arguments(product)
    for images, factor in (
        (factors["self"], factors["other"]),
        (factors["other"], factors["self"]),
    ):
        if _is_of_channels(factor, images):
            return images, factor
    return product, None


def _is_pointwise(convolution: Node) -> bool:
    given = bound_arguments(convolution)
    weight = fake_value(given["weight"])
    plain = (given["stride"], given["padding"], given["groups"]) == ([1, 1], [0, 0], 1)
    return plain and weight.dim() == _IMAGE and tuple(weight.shape[2:]) == (1, 1)


def _is_of_channels(factor: Node | float, images: Node | float) -> bool:
    if not isinstance(factor, torch.fx.Node) or not isinstance(images, torch.fx.Node):
        return False
    of_channels, of_images = fake_value(factor), fake_value(images)
    if of_channels.dim() != _IMAGE or of_images.dim() != _IMAGE:
        return False
    batch, channels, *window = of_channels.shape
    return bool(
        of_channels.dtype == of_images.dtype
        and surely_equal(window, (1, 1))
        and surely_equal([channels], [of_images.shape[1]])
        and (surely_equal([batch], [1]) or surely_equal([batch], [of_images.shape[0]]))
        and not surely_equal(of_images.shape[2:], window)
    )
