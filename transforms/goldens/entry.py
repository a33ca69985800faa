"""Real samples of a manifest's entry: inputs of a golden case, and calls for calibration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import load_file

from transforms.goldens.cases import input_dtype
from zoo.errors import SourceError
from zoo.sources.context import Context, resolve_inside
from zoo.sources.use import calibration_data, gate_data
from zoo.spec import InputSpec, ModelSpec, ProgramSpec, SpeechSpec, WordGate
from zoo.speech import held_out

if TYPE_CHECKING:
    from transforms.passes.quantisation import Call


_FULL = 2.0**15  # a 16-bit sample over this is a fraction


def real_sample(
    spec: ModelSpec, program: ProgramSpec, context: Context
) -> dict[str, torch.Tensor] | None:
    """Return the inputs of one call: as few samples as possible, or the shortest recording.

    Return None if the entry has no samples that fit. Raise SourceError if its data cannot be read.
    """
    if spec.accuracy is not None and spec.accuracy.program == program.name:
        found = load_file(gate_data(spec.accuracy, spec.use, context))
        return _fewest(program, {i.name: found[i.name] for i in program.inputs if i.name in found})
    if spec.calibration:
        data = calibration_data(spec, context)
        call = next(iter(samples(program, data, alone=len(spec.programs) == 1)))
        names = (i.name for i in program.inputs)
        return _fewest(program, dict(zip(names, call, strict=True)))
    if spec.speech is not None and spec.speech.gate is not None:
        return _recording(program, spec.speech, spec.speech.gate, context)
    return None


def _fewest(
    program: ProgramSpec, tensors: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor] | None:
    """Return the first samples, as many as a call needs; None if they do not fit."""
    found, sizes = dict[str, torch.Tensor](), dict[str, int]()
    for spec in program.inputs:
        given = tensors.get(spec.name)
        if given is None or given.dim() != len(spec.shape) or not spec.shape:
            return None
        first = spec.shape[0]
        few = given[: first if isinstance(first, int) else program.dimensions[first].low]
        for named, size in zip(spec.shape, few.shape, strict=True):
            expected = sizes.setdefault(named, size) if isinstance(named, str) else named
            if size != expected:
                return None
        found[spec.name] = few.contiguous()
    bounds = ((size, program.dimensions[name]) for name, size in sizes.items())
    fits = all(d.low <= n <= d.high and n % d.multiple_of == 0 for n, d in bounds)
    return found if fits else None


def _recording(
    program: ProgramSpec, speech: SpeechSpec, gate: WordGate, context: Context
) -> dict[str, torch.Tensor] | None:
    """Return the shortest recording, padded for `listen`; None for other programs."""
    inputs = {spec.name: spec for spec in program.inputs}
    if not {"samples"} <= inputs.keys() <= {"samples", "lengths"}:
        return None
    known = held_out(resolve_inside(gate.folder, context), speech.rate)
    number = int(known.lengths.argmin())
    start, length = int(known.lengths[:number].sum()), int(known.lengths[number])
    size = inputs["samples"].shape[-1]
    if isinstance(size, str):
        step, low = program.dimensions[size].multiple_of, program.dimensions[size].low
        high, size = program.dimensions[size].high, max(-(-length // step) * step, low)
    else:
        high = size
    if max(length, size) > high:
        return None
    padded = np.zeros((1, size), np.float32)
    padded[0, :length] = known.samples[start : start + length] / _FULL
    lengths = torch.tensor([length], dtype=torch.int64)
    found = {"samples": torch.from_numpy(padded), "lengths": lengths}
    return {name: found[name] for name in inputs}


def samples(program: ProgramSpec, data: Path, *, alone: bool) -> Iterator[Call]:
    """Yield the calls that a file of samples provides for a program of an entry.

    For each input the safetensors file has one slice per sample along the first axis, named after
    the input if the program is `alone`, else `<program>/<input>`. Raise SourceError if the file
    lacks an input, has too few samples of one for a call or has a shape or dtype that the program
    does not take; or if the inputs' first axes differ.
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
    """Return the fewest and the most samples per call."""
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
