"""Calibration: how large what each rounded weight meets becomes on samples, for `int8-static`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from transforms.goldens.cases import input_dtype
from transforms.graph.record import origin
from transforms.rounding_costs import ProductRun, changed_weights, other_operand
from zoo.errors import SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from torch.export import ExportedProgram
    from torch.fx import Node

    from zoo.spec import InputSpec, ProgramSpec

Call = Sequence[torch.Tensor]  # a tensor for each input, in order
Range = tuple[float, float]  # from the smallest to the largest, nought between them


def operand_ranges(
    before: ExportedProgram, after: ExportedProgram, calls: Iterable[Call]
) -> dict[str, Range]:
    """The range of what meets each rounded weight in products, over all calls in float32.

    Args:
        before: the program with whole weights.
        after: the same graph with rounded ones.
        calls: one for each sample, or several of them.

    Returns:
        By the parameter's name in the program; those alone whose products the runtime computes in
        integers.

    Raises:
        UsageError: a sample makes numbers that are not finite.
    """
    watched = _Watched(before, changed_weights(before, after))
    for inputs in calls:
        watched.record(inputs)
    names = before.graph_signature.inputs_to_parameters
    return {names[node.name]: ends for node, ends in watched.ranges.items()}


def fitting_calls(place: str, calls: Iterable[Call], example: Call) -> Iterator[Call]:
    """The calls, each checked against an example's tensors.

    Raises:
        UsageError: one has another number of inputs, or one of another dtype or number of axes.
    """
    wanted = [_form(tensor) for tensor in example]
    for call in calls:
        is_list = isinstance(call, (list, tuple))
        if not is_list or [_form(each) for each in call] != wanted:
            found = ", ".join(_form(each) for each in call) if is_list else _form(call)
            fact = f"a sample is {found}, the program takes {', '.join(wanted)}"
            raise UsageError(place, fact, "Give for each sample a tuple of all inputs, in order")
        yield [tensor.contiguous() for tensor in call]


def _form(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"{value.dtype} of {value.dim()} axes".removeprefix("torch.")


def samples(program: ProgramSpec, data: Path, *, alone: bool) -> Iterator[Call]:
    """The calls that a file of samples makes for a program.

    Args:
        program: of the entry.
        data: safetensors; of each input as many slices along the first axis as there are samples.
        alone: whether it is the only program, so that its inputs are there by their own names;
            else as `<program>/<input>`.

    Raises:
        SourceError: the file lacks an input, or has too few samples of one for a call, or of a
            shape or dtype that the program does not take; or inputs' first axes differ.
    """
    tensors = load_file(data)
    names = [spec.name if alone else f"{program.name}/{spec.name}" for spec in program.inputs]
    if missing := [name for name in names if name not in tensors]:
        raise SourceError(data.name, f"the samples for calibration lack {missing[0]!r}")
    found = [
        _fitting(data.name, name, tensors[name], spec)
        for name, spec in zip(names, program.inputs, strict=True)
    ]
    count = min(len(tensor) for tensor in found)
    if count == 0 or any(len(tensor) != count for tensor in found):
        sizes = ", ".join(f"{n}: {len(t)}" for n, t in zip(names, found, strict=True))
        raise SourceError(data.name, f"needs as many samples of each input, and one: {sizes}")
    least, most = _samples_a_call(data.name, program, count)
    for start in range(0, count, most):
        if count - start >= least:
            yield [tensor[start : start + most] for tensor in found]


def _samples_a_call(place: str, program: ProgramSpec, count: int) -> tuple[int, int]:
    """The fewest and the most."""
    firsts = {spec.shape[0] for spec in program.inputs}
    if len(firsts) > 1:
        fact = f"the first axes of program {program.name}'s inputs differ, so are no samples"
        raise SourceError(place, fact)
    (first,) = firsts
    if isinstance(first, int):
        least = most = first
    else:
        least, most = program.dimensions[first].low, program.dimensions[first].high
    if count < least:
        raise SourceError(
            place, f"has {count} samples, program {program.name} takes {least} a call"
        )
    return least, most


def _fitting(place: str, name: str, tensor: torch.Tensor, spec: InputSpec) -> torch.Tensor:
    wanted = input_dtype(spec, torch.float32)
    fits = tensor.dim() == len(spec.shape) > 0 and all(
        not isinstance(size, int) or size == found
        for size, found in zip(spec.shape[1:], tensor.shape[1:], strict=True)
    )
    if not fits or tensor.dtype is not wanted:
        fact = f"{name!r} has {list(tensor.shape)} of {tensor.dtype}, the program takes"
        fact = f"{fact} {list(spec.shape)} of {wanted}".replace("torch.", "")
        raise SourceError(place, fact, "Give samples along the first axis")
    return tensor


class _Watched(ProductRun):
    """Exact throughout; remembers what it saw."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ranges: dict[Node, Range] = {}

    def product(self, node: Node, value: Any, weights: Sequence[Node]) -> Any:
        for weight in weights:
            if (found := other_operand(node, weight)) is None:
                continue
            operand = self.arguments(node, weight)[0][found[0]]
            if operand.numel() == 0:
                continue
            if not bool(operand.isfinite().all()):
                fact = "a sample makes numbers that are not finite"
                raise UsageError(f"calibration of {origin(node)}", fact, "Leave the sample out")
            low, high = self.ranges.get(self.origin[weight], (0.0, 0.0))
            ends = min(low, float(operand.min())), max(high, float(operand.max()))
            self.ranges[self.origin[weight]] = ends
        return value
