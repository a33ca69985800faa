"""Golden cases made from the inputs that a program's owner gave.

The first case is those inputs. If sizes are dynamic, inputs of the lowest, the highest and odd
sizes follow. Their floats and integers are drawn with replacement from the given tensor's elements,
which the program is known to take; their booleans are the given ones, repeated or cut along each
axis, so that masks keep their form. If an input is a picture or speech by its name and shape, a
last case has synthetic ones, with the mean, deviation and range of the given tensor's elements. If
an example was expanded, a case has other values in each repetition; otherwise a program that mixes
up rows would go unnoticed. For a program with state each case is the first of several calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.validation.findings import CaseKind
from transforms.goldens.cases import GoldenCase, PlannedCase, run_cases, telling_sizes
from transforms.goldens.realistic import Values, content_of, draw, generator_of, sizes_of
from transforms.graph.call_signature import Eager, Signature
from transforms.graph.layouts import plain
from zoo.spec import Dimension

_LIFELIKE = frozenset({CaseKind.PICTURE, CaseKind.SPEECH})
_GIVEN = "the given inputs"
_FIT = "Give inputs of dtypes and sizes that it takes, or narrow the ranges of sizes"
_APART = f"{_GIVEN}, with rows that differ where they were expanded"
_EQUAL_ROWS = "Give them as .contiguous() where all rows have to be equal"


def example_goldens(
    place: str, signature: Signature, example: Mapping[str, Tensor], eager: Eager, calls: int
) -> list[GoldenCase]:
    """Run eager on the given inputs, and on inputs of every telling size; see `run_cases`."""
    own = {
        size: example[spec.name].shape[axis]
        for spec in signature.inputs
        for axis, size in enumerate(spec.shape)
        if isinstance(size, str)
    }
    ranges = {
        name: Dimension(low=low, high=high, multiple_of=step)
        for name, (low, high, step) in signature.dimensions.items()
    }
    others = (s for s in telling_sizes(ranges) if s != own)
    plan = [PlannedCase(own, CaseKind.GIVEN, _GIVEN, _FIT)]
    plan += [PlannedCase(sizes, CaseKind.REDRAWN, _GIVEN, _FIT) for sizes in others]
    contents = [(content_of(spec), example[spec.name]) for spec in signature.inputs]
    kinds = [content.kind for content, given in contents if content and _varies(given)]
    if kinds:
        plan.append(PlannedCase(sizes_of(signature.inputs, ranges), kinds[0], _GIVEN, _FIT))
    apart = {name: rows_apart(tensor) for name, tensor in example.items()}
    if any(apart[name] is not tensor for name, tensor in example.items()):
        plan.append(PlannedCase(own, CaseKind.REDRAWN, _APART, _EQUAL_ROWS))

    def inputs(planned: PlannedCase, number: int, call: int) -> dict[str, Tensor]:
        source = example if planned.kind is CaseKind.GIVEN else apart
        seed = f"{number - 1}" + (f":{call}" if call else "")
        return {
            spec.name: _input(spec, source[spec.name], planned, seed, first=call == 0)
            for spec in signature.inputs
        }

    return run_cases(place, plan, inputs, eager, calls)


def _varies(example: Tensor) -> bool:
    """Return whether a tensor's elements show which values may occur."""
    return example.numel() > 1 and bool(example.isfinite().all()) and bool(example.std() > 0)


def _input(
    spec: TensorSpec, example: Tensor, planned: PlannedCase, seed: str, *, first: bool
) -> Tensor:
    shape = [planned.dimensions[s] if isinstance(s, str) else s for s in spec.shape]
    content = content_of(spec)
    if planned.kind in _LIFELIKE and content is not None and _varies(example):
        wide = example.double()
        ends = float(wide.min()), float(wide.max())
        values = Values(float(wide.mean()), float(wide.std()), *ends)
        return draw(content, shape, values, seed=f"{spec.name}:{seed}").to(example.dtype)
    if first and list(example.shape) == shape:
        return plain(example)
    return redrawn(example, shape, seed=f"{spec.name}:{seed}")


def rows_apart(example: Tensor) -> Tensor:
    """Make the rows of an expanded tensor differ, unless it has a single value.

    Rows of a mask are rolled, so that each hides as many elements as the others.
    """
    sizes, strides = example.shape, example.stride()
    repeated = [axis for axis, stride in enumerate(strides) if stride == 0 and sizes[axis] > 1]
    kept = [axis for axis, size in enumerate(sizes) if size > 1 and axis not in repeated]
    if not repeated or not kept or not example.numel():
        return example
    if example.dtype is not torch.bool:
        other = redrawn(example, sizes, seed="apart")
    else:
        axis, number = kept[-1], torch.zeros((), dtype=torch.int64)
        for each in repeated:
            number = number * sizes[each] + _counted(sizes, each)
        place = (number + _counted(sizes, axis)) % sizes[axis]
        other = example.gather(axis, place.expand(sizes))
    return example if torch.equal(other, example) else other


def _counted(sizes: Sequence[int], axis: int) -> Tensor:
    """Return the positions along an axis, shaped for broadcasting."""
    return torch.arange(sizes[axis]).view([-1 if each == axis else 1 for each in range(len(sizes))])


def redrawn(example: Tensor, shape: Sequence[int], *, seed: str) -> Tensor:
    """Return a tensor of the given shape with values like the example's; see the module."""
    if not example.numel():
        return torch.zeros(tuple(shape), dtype=example.dtype)
    if example.dtype is torch.bool:
        for axis, size in enumerate(shape):
            example = example.index_select(axis, torch.arange(size) % example.shape[axis])
        return example
    drawn = torch.randint(example.numel(), tuple(shape), generator=generator_of(seed))
    return example.detach().reshape(-1)[drawn]
