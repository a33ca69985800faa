"""How a program is called: its tensors, its dynamic sizes and the state it keeps between calls."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.types import py_sym_types
from torch.utils._pytree import (
    BUILTIN_TYPES,
    SUPPORTED_NODES,
    GetAttrKey,
    TreeSpec,
    _get_node_type,
    is_structseq_instance,
    register_pytree_node,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.numerics import Dtype
from zoo.errors import ExportError, UsageError

DTYPES = {getattr(torch, dtype.value): dtype for dtype in Dtype}  # those that artifacts support
CONSTANTS = (bool, int, float, str, type(None))  # that a call may take beside its tensors
_NO_OBJECTS = "Return tensors; a model of transformers keeps no cache with config.use_cache = False"
Call = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]  # tensors by name
Dimensions = dict[str, tuple[int, int, int]]  # name -> lowest size, highest size and step
_WHOLE = "Give DynamicCache() without a config, which holds all of them"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BOUNDED = "Say one, e.g. torch.export.Dim('batch', min=1, max=64): both ends are proven"
_SHAPES = (
    "Give one of each in order, or by name: {'x': {0: torch.export.Dim('n', min=1, max=64)}}, and "
    "None where all sizes are fixed"
)
_INDEPENDENT = "Sizes are independent: make one input of the other in forward, or fix both sizes"


@dataclass(frozen=True)
class Signature:
    """The part of a bundle's manifest that describes a call."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dimensions: Dimensions


def signature_of(
    program: ExportedProgram,
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    dimensions: Dimensions,
) -> Signature:
    """Return the signature of a program, with the given input names and shapes and output names.

    An output's axis has the name of a dimension if it equals one, and `?` if it depends on one in
    another way.
    """
    symbols: dict[str, str] = {}
    taken = []
    for (name, shape), value in zip(inputs.items(), given(program), strict=True):
        symbols |= {str(value.shape[i]): s for i, s in enumerate(shape) if isinstance(s, str)}
        taken.append(TensorSpec(name=name, dtype=DTYPES[value.dtype], shape=tuple(shape)))
    made = []
    for name, value in zip(outputs, returned(program), strict=True):
        sizes = (s if isinstance(s, int) else symbols.get(str(s), "?") for s in value.shape)
        made.append(TensorSpec(name=name, dtype=DTYPES[value.dtype], shape=tuple(sizes)))
    return Signature(tuple(taken), tuple(made), dimensions)


def given(program: ExportedProgram) -> list[Any]:
    """Return the fake values of the user's inputs, in order; constants stay as they are."""
    return _values(program, program.graph_signature.user_inputs)


def returned(program: ExportedProgram) -> list[Any]:
    """Return the fake values of the user's outputs, in order; constants stay as they are."""
    return _values(program, program.graph_signature.user_outputs)


def output_names(program: ExportedProgram) -> tuple[str, ...]:
    """Return a name for each returned value: its keys, or `output` and its positions."""
    spec = program.call_spec.out_spec
    # Rebuilding a cache needs tensors of four axes; other containers accept any value.
    leaves = tree_unflatten([torch.zeros(1, 1, 1, 1)] * spec.num_leaves, spec)
    # torch's pytrees do not name the fields of its own result types, such as topk's.
    named = tree_map(_fields, leaves, is_leaf=is_structseq_instance)
    names = [_name(path) for path, _ in tree_flatten_with_path(named)[0]]
    if len({*names}) < len(names):
        return tuple(f"output_{number}" for number in range(len(names)))
    return tuple(names)


def named_tensors(result: Any) -> Any:
    """Return the result; by name and without None if it has a dataclass, a cache or None."""
    if any(is_dataclass(leaf) for leaf in tree_leaves(result)):
        result = tree_map(_opened, result)
    leaves, spec = tree_flatten_with_path(result)
    tensors = [(_name(path), leaf) for path, leaf in leaves if leaf is not None]
    for name, leaf in tensors:
        if not isinstance(leaf, (Tensor, *py_sym_types, *CONSTANTS)):
            fact = f"its result {name} is a {type(leaf).__name__}, not a tensor"
            raise ExportError("forward", fact, _NO_OBJECTS)
    if len(tensors) == len(leaves) and is_plain(spec):
        return result
    named = dict(tensors)  # by position if two would share a name
    return named if len(named) == len(tensors) else [leaf for _, leaf in tensors]


def is_plain(spec: TreeSpec) -> bool:
    """Return whether a tree consists of Python's own containers, which every torch can load."""
    own = spec.is_leaf() or spec.type in BUILTIN_TYPES or issubclass(spec.type, tuple)
    return own and all(map(is_plain, spec.children()))


def know_caches() -> None:
    """Register transformers' caches with torch's pytrees if transformers is imported."""
    if "transformers.cache_utils" not in sys.modules:
        return
    support = importlib.import_module("transformers.integrations.executorch")
    support.register_dynamic_cache_export_support()
    pair, names = support.EncoderDecoderCache, ("self_attention_cache", "cross_attention_cache")
    if pair not in SUPPORTED_NODES:
        register_pytree_node(
            pair,
            lambda cache: ([getattr(cache, name) for name in names], None),
            lambda caches, _: pair(*caches),
            serialized_type_name=f"{pair.__module__}.{pair.__name__}",
            flatten_with_keys_fn=lambda cache: (
                [(GetAttrKey(name), getattr(cache, name)) for name in names], None
            ),
        )  # fmt: skip


def refuse_dropped_tokens(place: str, given: Any, rebuilt: Any) -> None:
    """Raise UsageError if a cache has seen fewer tokens after it is rebuilt from its tensors."""
    kind: Any = getattr(sys.modules.get("transformers.cache_utils"), "DynamicCache", ())

    def lengths(tree: Any) -> list[int]:
        leaves = tree_leaves(tree, is_leaf=lambda each: isinstance(each, kind))
        layers = (layer for each in leaves if isinstance(each, kind) for layer in each.layers)
        return [layer.get_seq_length() for layer in layers if hasattr(layer, "cumulative_length")]

    for seen, held in zip(lengths(given), lengths(rebuilt), strict=True):
        if seen != held:
            fact = f"a sliding cache holds {held} of the {seen} tokens that it has seen, and its "
            raise UsageError(place, f"{fact}tensors do not say how many it dropped", _WHOLE)


def _opened(leaf: Any) -> Any:
    """Return the fields of a dataclass by name, since torch's pytrees do not know it."""
    if not is_dataclass(leaf) or isinstance(leaf, type):
        return leaf
    return {each.name: tree_map(_opened, getattr(leaf, each.name)) for each in fields(leaf)}


def _fields(value: Any) -> Any:
    if not is_structseq_instance(value):
        return value
    return dict(zip(type(value).__match_args__, value, strict=True))


def _name(path: Sequence[Any]) -> str:
    parts = [str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", "")))) for k in path]
    return "_".join(parts if parts and not parts[0].isdigit() else ["output", *parts])


def _values(program: ExportedProgram, names: Sequence[Any]) -> list[Any]:
    nodes = {n.name: n for n in program.graph.nodes}
    return [nodes[n].meta["val"] if isinstance(n, str) and n in nodes else n for n in names]


def state_of(program: ExportedProgram) -> tuple[str, ...]:
    """Return the names of the buffers that a call of a program writes, without duplicates."""
    return tuple(dict.fromkeys(program.graph_signature.buffers_to_mutate.values()))


@dataclass(frozen=True)
class Eager:
    """A program in eager PyTorch: it takes tensors by name and returns tensors by name."""

    module: torch.nn.Module  # in eval mode
    # Maps tensors by name to the positional and keyword arguments of forward
    arguments: Callable[[Mapping[str, Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]
    results: Callable[[Any], dict[str, Tensor]]  # maps what forward returns to outputs by name

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Call the program once; buffers that it writes keep their new values."""
        arguments, keywords = self.arguments(inputs)
        return self.results(self.module(*arguments, **keywords))

    def from_first_state(self) -> Call:
        """Return a call that keeps its own state, from the module's buffers, which stay as is."""
        buffers = {n: value.detach().clone() for n, value in self.module.named_buffers()}

        def call(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return self.results(
                torch.func.functional_call(self.module, buffers, *self.arguments(inputs))
            )

        return call

    def first(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs of the first call after a reset, whatever was called before."""
        return self.from_first_state()(inputs)


Shapes = dict[str, tuple[int | str, ...]]  # by input name


def named_sizes(
    place: str, program: ExportedProgram, inputs: Mapping[str, Any]
) -> tuple[Shapes, Dimensions]:
    """Return the shape of every input with names for its dynamic axes, and their ranges.

    `inputs` maps each input, in order, to its `dynamic_shapes`. A dimension is named after its
    `torch.export.Dim`, or else after its input and axis. Raise ExportError if a range is unbounded,
    or if a size is not a multiple of an independent one.
    """
    found: dict[str, str] = {}  # expression of a size -> its name
    roots: dict[str, str] = {}  # symbol -> the expression that it was first seen in
    dimensions: Dimensions = {}
    made: Shapes = {}
    for (name, axes), value in zip(inputs.items(), given(program), strict=True):
        shape: list[int | str] = []
        for axis, size in enumerate(value.shape):
            if isinstance(size, int):
                shape.append(size)
                continue
            where = f"axis {axis} of input {name!r}"
            expression = size.node.expr
            if str(expression) not in found:
                step, symbol = expression.as_coeff_Mul()
                seen = roots.setdefault(str(symbol), str(expression))
                if not symbol.is_Symbol or seen != str(expression):
                    said = getattr(_dim(axes, axis), "__name__", expression)
                    fact = f"{where} is {said}, which depends on another size"
                    raise ExportError(place, fact, _INDEPENDENT)
                wanted = _dim_name(axes, axis) or f"{name}_{axis}"
                while wanted in dimensions:
                    wanted += "_"
                found[str(expression)] = wanted
                dimensions[wanted] = _range(place, where, program, symbol, int(step))
            shape.append(found[str(expression)])
        made[name] = tuple(shape)
    return made, dimensions


def _range(
    place: str, where: str, program: ExportedProgram, symbol: Any, step: int
) -> tuple[int, int, int]:
    bounds = program.range_constraints[symbol]
    if step * bounds.upper > 2**31:
        raise ExportError(place, f"{where} has no largest size up to 2 ** 31", _BOUNDED)
    if bounds.lower == bounds.upper:
        fact = f"{where} has the size {step * int(bounds.upper)} alone"
        raise ExportError(place, fact, "Leave it out of dynamic_shapes")
    return step * max(1, int(bounds.lower)), step * int(bounds.upper), step


def _dim(axes: Any, axis: int) -> Any:
    listed = dict(enumerate(axes)) if isinstance(axes, (list, tuple)) else axes or {}
    return listed.get(axis)


def _dim_name(axes: Any, axis: int) -> str:
    dimension = _dim(axes, axis)
    root = getattr(dimension, "root", dimension)  # `batch` of `2 * batch`
    called = getattr(root, "__name__", "")
    return called if isinstance(called, str) and _NAME.fullmatch(called) else ""


def axes_by_input(
    place: str, slots: Mapping[str, Any], tensors: Mapping[Any, Any], shapes: Any
) -> list[Any]:
    """Return the `dynamic_shapes` of each tensor and constant of the inputs, in order.

    `slots` maps each parameter of forward to the key of its input, or to several keys for `*args`
    and `**kwargs`; `tensors` are the inputs, by position or name. Sizes that `shapes` leaves out
    are fixed. Raise UsageError, at `place`, if it does not fit the inputs.
    """
    if any(isinstance(slot, dict) for slot in slots.values()):
        fact = "takes inputs by `**`, and of those torch.export makes no size dynamic"
        raise UsageError(place, fact, "Name them among the parameters of forward")
    keys = [(n, k) for n, s in slots.items() for k in (s if isinstance(s, tuple) else [s])]
    takes = ", ".join(f"{name} of {_count(tensors[key])}" for name, key in keys)
    fault = UsageError(place, f"`dynamic_shapes` does not fit its inputs: {takes}", _SHAPES)
    ordered = list(slots.values())
    if isinstance(shapes, Mapping):
        known = {**{key: key for key in tensors if isinstance(key, str)}, **slots}
        pairs = [(known.get(name), axes) for name, axes in shapes.items()]
    else:
        if len(ordered) != len(shapes) or not all(map(_fits, ordered, shapes)):
            ordered = list(tensors)
        if len(ordered) != len(shapes):
            raise fault
        pairs = list(zip(ordered, shapes, strict=True))
    found: dict[Any, Any] = {}
    for slot, axes in pairs:
        if not _fits(slot, axes):
            raise fault
        each = zip(slot, axes or (), strict=False) if isinstance(slot, tuple) else [(slot, axes)]
        found.update(each)
    try:
        return [axes for key in tensors for axes in _spread(tensors[key], found.get(key))]
    except (LookupError, TypeError, ValueError):
        raise fault from None


def _count(value: Any) -> str:
    number = len(tree_leaves(value))
    return f"{value.dim()} axes" if isinstance(value, Tensor) else f"{number} values"


def _spread(value: Any, axes: Any) -> list[Any]:
    """Return an entry for each tensor and constant in a value; ValueError if it does not fit."""
    if isinstance(value, (Tensor, *CONSTANTS)):
        if not isinstance(axes, Mapping):
            return [axes]
        count = value.dim() if isinstance(value, Tensor) else 0
        placed = {range(count)[axis]: size for axis, size in axes.items()}
        if len(placed) < len(axes) or any(isinstance(size, str) for size in placed.values()):
            raise ValueError(axes)
        return [placed]
    parts, _ = SUPPORTED_NODES[_get_node_type(value)].flatten_fn(value)
    if isinstance(axes, Mapping):
        if strange := axes.keys() - set(value):
            raise ValueError(strange)
        axes = [axes.get(key) for key in value]
    pairs = zip(parts, [None] * len(parts) if axes is None else axes, strict=True)
    return [each for pair in pairs for each in _spread(*pair)]


def _fits(slot: Any, axes: Any) -> bool:
    """Return whether `axes` can describe a parameter's input, or each of its several inputs."""
    if isinstance(slot, tuple) and axes is not None:
        return isinstance(axes, (list, tuple)) and len(axes) == len(slot)
    return slot is not None and isinstance(axes, (Mapping, list, tuple, type(None)))
