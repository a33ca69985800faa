"""What operators do to axes and to storage: layouts followed, constants seen through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from transforms.graph.editor import fake_value
from transforms.passes.axis_provenance import Axes, Size, permuted, regrouped, sizes_of

if TYPE_CHECKING:
    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten

_MATRIX = 2  # rank

# The elements keep their row-major order; only the grouping into axes may change.
_REGROUPING = frozenset({
    aten.view.default, aten.view_copy.default, aten.reshape.default, aten._unsafe_view.default,
    aten.flatten.using_ints, aten.unflatten.int,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.squeeze_copy.default, aten.squeeze_copy.dim, aten.squeeze_copy.dims,
    aten.unsqueeze.default, aten.unsqueeze_copy.default,
    aten.expand.default, aten.expand_copy.default,  # followed only where they expand nothing
    aten.contiguous.default, aten.clone.default,
    aten.alias.default, aten.alias_copy.default, aten.detach.default, aten.detach_copy.default,
})  # fmt: skip

# The axes are reordered.
_PERMUTING = frozenset({
    aten.permute.default, aten.permute_copy.default,
    aten.transpose.int, aten.transpose_copy.int, aten.swapaxes.default, aten.swapdims.default,
    aten.t.default, aten.t_copy.default, aten.numpy_T.default, aten.mT.default,
    aten.movedim.int, aten.movedim.intlist, aten.moveaxis.int, aten.moveaxis.intlist,
})  # fmt: skip

# These hand out, or read, the storage itself: what feeds them must stay as it is in memory.
_STORAGE_READERS = frozenset({
    aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default,
    aten.sym_stride.default, aten.sym_stride.int,
    aten.sym_storage_offset.default, aten.is_contiguous.default,
})  # fmt: skip


def is_tensor(node: Any) -> bool:
    """Whether `node` is a graph node that yields one tensor."""
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def is_layout(node: Node) -> bool:
    """Whether `node` only rearranges its first argument."""
    return node.target in _REGROUPING or node.target in _PERMUTING


def follow(node: Node, axes: Axes) -> Axes | None:
    """The axes after the layout operator `node`, given those of its input; None if unknown."""
    if node.target in _PERMUTING:
        return permuted(axes, axis_order(node, len(axes)))
    return regrouped(axes, sizes_of(fake_value(node).shape))


def axis_order(node: Node, rank: int) -> tuple[int, ...]:
    """Which axis of its source each axis of the permutation `node` is.

    Read off a tensor without memory whose axes have sizes of their own: 2, 3, 4 ...

    Args:
        node: permutes the axes of its first argument.
        rank: of that argument, any.
    """
    probe = torch.empty(tuple(range(2, 2 + rank)), device="meta")
    moved = node.target(probe, *node.args[1:], **node.kwargs)  # type: ignore[operator]
    return tuple(size - 2 for size in moved.shape)


def constant_value(editor: ProgramEditor, node: Any) -> torch.Tensor | None:
    """The tensor behind a weight, or behind layout operators on one; None for all else."""
    if not is_tensor(node):
        return None
    if node.op == "call_function" and is_layout(node) and len(node.all_input_nodes) == 1:
        inner = constant_value(editor, node.args[0])
        if inner is None:
            return None
        with torch.no_grad():
            moved: torch.Tensor = node.target(inner.detach(), *node.args[1:], **node.kwargs)
        return moved
    value = editor.constant(node)
    return None if value is None else value.detach()


def constant_matrix(editor: ProgramEditor, node: Any) -> torch.Tensor | None:
    """The constant matrix that `node` holds, or repeats along axes before its last two.

    A product with a matrix that was expanded to a batch is a product with the matrix.
    """
    value = constant_value(editor, node)
    while value is None and is_tensor(node) and node.target in _REGROUPING:
        inner = node.args[0]
        if not is_tensor(inner) or _matrix_sizes(inner) != _matrix_sizes(node):
            return None
        node = inner
        value = constant_value(editor, node)
    while value is not None and value.dim() > _MATRIX and 0 not in value.shape:
        if value.shape[0] != 1 and value.stride(0) != 0:
            return None
        value = value[0]
    return value if value is not None and value.dim() == _MATRIX else None


def _matrix_sizes(node: Node) -> tuple[Size, ...]:
    return sizes_of(fake_value(node).shape)[-2:]


def pinned_nodes(editor: ProgramEditor) -> set[Node]:
    """The nodes that may share storage with one that is written, or read by its strides.

    Nothing may be computed from another place, or at another time, than these are.
    """
    shared = editor.aliasing()
    readers = editor.calls(*_STORAGE_READERS)
    read = [operand for node in readers for operand in node.all_input_nodes if is_tensor(operand)]
    return {
        node
        for node in editor.graph.nodes
        if shared.is_written(node) or any(shared.share(node, other) for other in read)
    }


def is_dtype_assertion(node: Node) -> bool:
    """Whether `node` only asserts what no rearrangement changes: dtype, device, memory layout."""
    return (
        node.target is aten._assert_tensor_metadata.default
        and node.args[1:3] in {(), (None,), (None, None)}
        and not {"size", "stride"} & node.kwargs.keys()
    )
