"""How an exported program is called: names, dtypes and shapes of its tensors, and its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils._pytree import (
    is_structseq_instance,
    tree_flatten_with_path,
    tree_map,
    tree_unflatten,
)

from menagerie.format.bundle_manifest import TensorSpec
from zoo.spec import Dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch.export import ExportedProgram

Dimensions = dict[str, tuple[int, int, int]]  # name -> lowest and highest size, and step


@dataclass(frozen=True)
class Signature:
    """What a bundle's manifest says of a call."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dimensions: Dimensions


def signature_of(
    program: ExportedProgram,
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    dimensions: Dimensions,
) -> Signature:
    """The signature of a program whose inputs are called and shaped so, and whose outputs are.

    An output's axis bears the name of a dimension where it equals one, `?` where it depends on one
    in another way.
    """
    symbols: dict[str, str] = {}
    taken = []
    for (name, shape), value in zip(inputs.items(), given(program), strict=True):
        symbols |= {str(value.shape[i]): s for i, s in enumerate(shape) if isinstance(s, str)}
        taken.append(TensorSpec(name=name, dtype=_dtype(value), shape=tuple(shape)))
    made = [
        TensorSpec(name=name, dtype=_dtype(value), shape=_shape(value, symbols))
        for name, value in zip(outputs, returned(program), strict=True)
    ]
    return Signature(tuple(taken), tuple(made), dimensions)


def given(program: ExportedProgram) -> list[Any]:
    """The fake values of the user's inputs, in order; constants as they are."""
    return _values(program, program.graph_signature.user_inputs)


def returned(program: ExportedProgram) -> list[Any]:
    """The fake values of what the user gets back, in order; constants as they are."""
    return _values(program, program.graph_signature.user_outputs)


def output_names(program: ExportedProgram) -> tuple[str, ...]:
    """A name for each value returned: its keys, or `output` and its positions."""
    spec = program.call_spec.out_spec
    positions = tree_unflatten(list(range(spec.num_leaves)), spec)
    # Of the fields of its own results, such as topk's, torch's trees know nothing.
    named = tree_map(_fields, positions, is_leaf=is_structseq_instance)
    paths, _ = tree_flatten_with_path(named)
    by_position = {position: _name(path) for path, position in paths}
    return tuple(by_position[position] for position in sorted(by_position))


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


def _shape(value: torch.Tensor, symbols: Mapping[str, str]) -> tuple[int | str, ...]:
    return tuple(s if isinstance(s, int) else symbols.get(str(s), "?") for s in value.shape)


def _dtype(value: torch.Tensor) -> Dtype:
    return Dtype(str(value.dtype).removeprefix("torch."))
