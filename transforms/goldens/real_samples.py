"""Real inputs of an entry, for a golden case: from its gates' data, or its calibration's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import load_file

from transforms.calibration import samples
from zoo.sources.context import resolve_inside
from zoo.speech import held_out

if TYPE_CHECKING:
    from zoo.sources.context import Context
    from zoo.spec import ModelSpec, ProgramSpec
    from zoo.spec_speech import SpeechSpec, WordGate

_FULL = 2.0**15  # a sample of 16 bits is a fraction of this


def real_sample(
    spec: ModelSpec, program: ProgramSpec, context: Context
) -> dict[str, torch.Tensor] | None:
    """Inputs of one call: as few samples as the program takes, or the shortest recording.

    Args:
        spec: the entry.
        program: of it.
        context: where the entry stands.

    Returns:
        A tensor for each input; None where the entry has no samples that fit.

    Raises:
        SourceError: its data cannot be read.
    """
    if spec.accuracy is not None and spec.accuracy.program == program.name:
        found = load_file(resolve_inside(spec.accuracy.data, context))
        return _fewest(program, {i.name: found[i.name] for i in program.inputs if i.name in found})
    if spec.calibration:
        data = resolve_inside(spec.calibration, context)
        call = next(iter(samples(program, data, alone=len(spec.programs) == 1)))
        names = (i.name for i in program.inputs)
        return _fewest(program, dict(zip(names, call, strict=True)))
    if spec.speech is not None and spec.speech.gate is not None:
        return _recording(program, spec.speech, spec.speech.gate, context)
    return None


def _fewest(
    program: ProgramSpec, tensors: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor] | None:
    """The first samples, as many as a call needs; None where they do not fit."""
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
    return (
        found if all(d.low <= n <= d.high and n % d.multiple_of == 0 for n, d in bounds) else None
    )


def _recording(
    program: ProgramSpec, speech: SpeechSpec, gate: WordGate, context: Context
) -> dict[str, torch.Tensor] | None:
    """The shortest recording, padded to a size that `listen` takes; None for other programs."""
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
