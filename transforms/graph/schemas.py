"""An operator's schema: its arguments by name, and whether a call is safe to move or drop."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

# Their memory is uninitialised, so two calls may differ.
_UNINITIALISED = ("aten::empty", "aten::new_empty", "prims::empty")

# Operators that write although their schema does not declare it, and the flag that makes them.
_TRAINING_FLAGS = {
    "aten::batch_norm": "training",
    "aten::native_batch_norm": "training",
    "aten::cudnn_batch_norm": "training",
    "aten::_batch_norm_impl_index": "training",
    "aten::instance_norm": "use_input_stats",
}
# An ATen operator with some of these arguments is random only if all of them are on. Beside
# `train`, `p`, a dropout's probability, is a switch too.
_SWITCHES = ("train", "training", "dropout", "dropout_p")

# These are elementwise, though torch does not tag them so; dropout only where it is off.
_UNTAGGED = frozenset({
    aten.log_sigmoid.default, aten.hardswish.default, aten.dropout.default,
    aten._to_copy.default, aten.to.dtype,
})  # fmt: skip


# Convolutions over one to three axes, as export leaves them.
CONVOLUTIONS = (
    aten.convolution.default, aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
    aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding,
)  # fmt: skip


def underlying(target: Any) -> Any:
    """Return the ATen operator of a target; edge dialect targets wrap it as `_op`."""
    if isinstance(target, torch._ops.OpOverload) or schema_of(target) is None:
        return target
    return getattr(target, "_op", target)


def is_composite(target: Any) -> bool:
    """Return whether an operator is defined in terms of others."""
    key = "CompositeImplicitAutograd"
    name = "" if schema_of(target) is None else underlying(target).name()
    return bool(name and torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def as_torch_does(operator: OpOverload) -> Callable[..., Any]:
    """Return PyTorch's own definition of a composite operator in terms of others."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    if not operator.has_kernel_for_dispatch_key(key):
        key = torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional
    return functools.partial(operator._op_dk, key)


def schema_of(target: Any) -> torch.FunctionSchema | None:
    """Return the operator's schema; None for Python functions and higher-order operators."""
    schema = getattr(target, "_schema", None)
    return schema if isinstance(schema, torch.FunctionSchema) else None


def qualified_name(target: Any) -> str:
    """Return namespace and name, e.g. `aten::permute_copy`; empty without a schema."""
    schema = schema_of(target)
    return "" if schema is None else str(schema.name)


def bound(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name, in the schema's order, with defaults."""
    schema = schema_of(operator)
    if schema is None:
        raise ValueError(f"{operator} has no schema")
    positional = [a.name for a in schema.arguments if not a.kwarg_only]
    given = {**dict(zip(positional, args, strict=False)), **kwargs}
    known = [a for a in schema.arguments if a.name in given or a.has_default_value()]
    return {a.name: given.get(a.name, a.default_value) for a in known}


def bound_arguments(node: Node) -> dict[str, Any]:
    """Return a call's arguments by name; see `bound`."""
    return bound(node.target, node.args, node.kwargs)


def call_with(node: Node, value_of: Callable[[Node], Any]) -> Any:
    """Return the result of a call whose argument nodes have the values that `value_of` returns."""
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_of)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def for_each_axis(values: Sequence[int], axes: int) -> list[int]:
    """Return a window's number for each axis; a convolution may take one for all axes."""
    return list(values) * axes if len(values) == 1 else list(values)


def writes(node: Node) -> bool:
    """Return whether a call writes into one of its arguments."""
    schema = schema_of(node.target)
    if schema is None or schema.is_mutable or schema.name not in _TRAINING_FLAGS:
        return schema is not None and schema.is_mutable
    given = bound_arguments(node)
    return given["running_mean"] is not None and bool(given[_TRAINING_FLAGS[schema.name]])


def nodes_in(value: Any) -> Iterator[Node]:
    """Yield the nodes inside an argument, which may be a list."""
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.fx.Node))


def producers(node: Node) -> set[Node]:
    """Return all nodes that `node` is computed from."""
    found: set[Node] = set()
    queue = [node]
    while queue:
        fresh = set(queue.pop().all_input_nodes) - found
        found |= fresh
        queue += fresh
    return found


def tensors_of(node: Node) -> list[torch.Tensor]:
    """Return the fake tensors that a node yields: one, several of a tuple, or none."""
    value = node.meta.get("val")
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if isinstance(item, torch.Tensor)]


def hashable(value: Any, of_node: Callable[[Node], Any] = lambda node: node) -> Any:
    """Return arguments in hashable form; 1, 1.0 and True differ, nodes map through `of_node`."""
    if isinstance(value, torch.fx.Node):
        return of_node(value)
    if isinstance(value, (list, tuple)):
        return tuple(hashable(item, of_node) for item in value)
    if isinstance(value, slice):
        return slice, hashable((value.start, value.stop, value.step), of_node)
    if isinstance(value, dict):
        return tuple(sorted((key, hashable(item, of_node)) for key, item in value.items()))
    return type(value), repr(value)


def is_random(node: Node) -> bool:
    """Return whether two calls with the same arguments may differ."""
    if qualified_name(node.target).startswith(_UNINITIALISED):
        return True
    if torch.Tag.nondeterministic_seeded not in getattr(underlying(node.target), "tags", ()):
        return False
    bound = bound_arguments(node)
    return all(bound[name] is None or bool(bound[name]) for name in _switches(node.target))


def _switches(target: Any) -> list[str]:
    schema = schema_of(target)
    if schema is None or not schema.name.startswith("aten::"):
        return []
    names = [argument.name for argument in schema.arguments]
    return [name for name in names if name in _SWITCHES or (name == "p" and "train" in names)]


def is_quantisation(target: Any) -> bool:
    """Return whether an operator converts to, from or as if to integers with a scale.

    Backends recognise a quantised operator by these nodes around it, so passes leave them alone.
    """
    return "quantize" in qualified_name(target) or "choose_qparams" in qualified_name(target)


def is_elementwise(node: Node) -> bool:
    """Return whether the call maps each element on its own, at any position, and does no more."""
    if torch.Tag.pointwise not in getattr(node.target, "tags", ()) and node.target not in _UNTAGGED:
        return False
    laid_out = bound_arguments(node).get("memory_format") is not None
    return is_functional(node) and not laid_out and not is_quantisation(node.target)


def has_effect(node: Node) -> bool:
    """Return whether a call writes, draws random numbers or asserts."""
    schema = schema_of(node.target)
    if schema is None:
        return not _is_arithmetic(node.target)
    if not schema.returns or writes(node):
        return True
    if torch.Tag.nondeterministic_seeded in underlying(node.target).tags:
        return is_random(node)
    return node.is_impure()


def is_functional(node: Node) -> bool:
    """Return whether a call's value depends on its arguments alone, without side effects."""
    return (
        node.op == "call_function"
        and not has_effect(node)
        and not is_random(node)
        and not node.meta.get("unbacked_bindings")  # sizes that are new for each call
    )


def enters_graph(node: Node) -> bool:
    """Return whether a branch or loop takes the node: torch wants each input in its own memory."""
    return any(isinstance(user.target, torch._ops.HigherOrderOperator) for user in node.users)


def _is_arithmetic(target: Any) -> bool:
    """Return whether a call is Python's own operator, or torch's on symbolic sizes."""
    module = getattr(target, "__module__", "") or ""
    name = getattr(target, "__name__", "")
    return module in {"_operator", "math"} or (module == "torch" and name.startswith("sym_"))


@functools.cache
def declare(
    schema: str,
    compute: Callable[..., Any],
    shape: Callable[..., Any] | None = None,
    memory_format: torch.memory_format = torch.contiguous_format,
    namespace: str = "menagerie",
) -> torch.library.Library:
    """Declare an operator, or its missing kernels, for the process; repeated calls do nothing.

    Its schema is in torch's notation; a program is interpreted with `compute`, torch's own
    operators. `shape` makes uninitialised results for arguments from which these cannot infer the
    shape. The runtime reads operands with any strides, and lays out results in `memory_format`.
    """

    def laid_out(*arguments: Any) -> Any:
        made = compute(*arguments)
        if isinstance(made, torch.Tensor):
            return made.clone(memory_format=memory_format)
        return tuple(each.clone(memory_format=memory_format) for each in made)

    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    name = f"{namespace}::{schema.partition('(')[0]}"
    if not torch._C._dispatch_has_kernel(name):
        library.define(schema, tags=(torch.Tag.flexible_layout,))  # type: ignore[no-untyped-call]
    for key, body in (("Meta", shape or laid_out), ("CPU", laid_out)):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            library.impl(name, body, key)  # type: ignore[no-untyped-call]
    return library
