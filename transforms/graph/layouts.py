"""How nodes downstream change when a node yields the same numbers in another layout.

It is tried on fake values before anything is edited, so that a pass can refuse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from transforms.graph.guards import no_new_guards
from transforms.graph.schemas import call_with, is_functional, nodes_in, qualified_name, schema_of
from zoo.sources.context import first_line

if TYPE_CHECKING:
    import numpy as np

    from transforms.graph.editor import ProgramEditor

# Operators that expose an operand's memory, or ask for its layout.
_READS_LAYOUT = ("as_strided", "sym_stride", "sym_storage_offset", "stride", "storage_offset",
                 "is_contiguous", "sym_is_contiguous", "_reshape_alias")  # fmt: skip
# Namespaces whose operators take any strides; a custom operator may rely on its operands' strides.
_ANY_STRIDES = ("aten::", "prims::", "quantized_decomposed::")


def reads_layout(node: Node) -> bool:
    """Return whether a call depends on its operand's layout, not on its values alone."""
    name = qualified_name(node.target).rpartition(":")[2]
    return name.removesuffix("_copy").removesuffix("_scatter") in _READS_LAYOUT


class Unfit(Exception):
    """Raised where a node is better left as it is, e.g. if a node downstream needs the old layout.

    The message names the node and the reason.
    """


def plain(value: torch.Tensor) -> torch.Tensor:
    """Return the same numbers in row-major memory of their own; sparse tensors are unchanged."""
    dense = value.layout is torch.strided
    return value.detach().clone(memory_format=torch.contiguous_format) if dense else value


def as_array(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the tensor as a dense array; bfloat16, which numpy lacks, as its bits in uint16."""
    dense = value.detach().cpu().contiguous()
    return (dense.view(torch.uint16) if dense.dtype is torch.bfloat16 else dense).numpy()


def as_tensor(value: np.ndarray[Any, Any], like: torch.Tensor) -> torch.Tensor:
    """Return an array as a tensor of the dtype of `like`; bfloat16 is passed as its bits."""
    made = torch.from_numpy(value.copy())
    return made.view(like.dtype) if made.dtype is torch.uint16 else made


def content_digest(value: torch.Tensor) -> bytes:
    """Return the SHA-256 of a tensor's dtype, shape and elements, whatever its layout."""
    value = value.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{value.dtype}{tuple(value.shape)}".encode())
    flat = value.as_strided((value.numel(),), (1,))  # with one element, strides may be any
    digest.update(flat.view(torch.uint8).numpy().data if value.numel() else b"")
    return digest.digest()


def layout(value: Any) -> tuple[Any, ...]:
    """Return dtype, sizes, strides and offset of fake tensors, with symbols as expressions."""
    if isinstance(value, (list, tuple)):
        return tuple(layout(item) for item in value)
    if not isinstance(value, torch.Tensor):
        return (_plain(value),)
    sizes, strides = tuple(map(_plain, value.shape)), tuple(map(_plain, value.stride()))
    return (value.dtype, sizes, strides, _plain(value.storage_offset()))


def same_layout(one: Any, other: Any) -> bool:
    """Return whether two fake values certainly have the same dtype, sizes, strides and offset."""
    return layout(one) == layout(other)


def _plain(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def evaluate(editor: ProgramEditor, node: Node, values: Mapping[Node, Any]) -> Any:
    """Compute a call's fake value from `values`; raise Unfit if the operator rejects them."""
    try:
        with no_new_guards(editor.fake_mode):
            return call_with(node, lambda n: values.get(n, n.meta.get("val")))
    except Exception as error:
        raise Unfit(f"{node.name} cannot take the layout: {first_line(error)}") from error


def downstream_values(
    editor: ProgramEditor, fresh: Mapping[Node, Any], returned: Collection[Node] = ()
) -> dict[Node, Any]:
    """Return the fake values that change when the nodes in `fresh` take the values given there.

    These are `fresh` and the new value of each node downstream whose layout changes with it. Raise
    Unfit if a node downstream cannot take its new operands or relies on their old layout, or if one
    of `returned`, which must keep their layouts, changes.
    """
    values = {n: v for n, v in fresh.items() if not same_layout(v, n.meta["val"])}
    changed = set(values)
    for node in editor.graph.nodes:
        if node in fresh or node.op == "output" or changed.isdisjoint(node.all_input_nodes):
            continue
        _check_indifferent(node)
        value = evaluate(editor, node, values)
        if _shape_and_dtype(value) != _shape_and_dtype(node.meta.get("val")):
            raise Unfit(f"{node.name} would change its shape or dtype")
        if not same_layout(value, node.meta.get("val")):
            values[node] = value
            changed.add(node)
    if moved := next(filter(changed.__contains__, returned), None):
        raise Unfit(f"{moved.name} is returned and would be laid out otherwise")
    return {**fresh, **values}


def _check_indifferent(node: Node) -> None:
    """Raise Unfit unless the call's numbers are the same for any layout of its operands."""
    if reads_layout(node):
        raise Unfit(f"{node.name} depends on the strides of its operand")
    name = qualified_name(node.target)
    if schema_of(node.target) is None:
        if getattr(node.target, "__name__", "") != "getitem":
            raise Unfit(f"{node.name} is no ATen operator: it may rely on the strides it has now")
    elif not name.startswith(_ANY_STRIDES):
        raise Unfit(f"{node.name} is a custom operator: it may rely on the strides it has now")
    elif not is_functional(node) and list(nodes_in(node.args)) and "assert" not in name:
        raise Unfit(f"{node.name} writes or draws random numbers in the order of memory")


def _shape_and_dtype(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(_shape_and_dtype(item) for item in value)
    return layout(value)[:2]
