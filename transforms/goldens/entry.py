"""Golden cases of a manifest's entry: its real samples, and the check of a candidate's cases.

`tasks.publish` starts the check as ``python -m transforms.goldens.entry``, a process of its own
without keys, with the order as JSON on standard input: it runs the model's own Python.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import load_file

from menagerie.format.bundle_manifest import Role
from menagerie.format.folder import open_bundle
from menagerie.numerics import ANY_FINITE, DEFAULT_TOLERANCES
from menagerie.speech.recipe import read_recipe
from menagerie.tensor_files import read_tensors
from menagerie.validation.compare import compare
from menagerie.validation.goldens import GoldenCases
from transforms.eager import accuracy_gate, eager_program, speech_parts
from transforms.goldens.cases import input_dtype, make_goldens
from transforms.graph.layouts import as_array
from zoo import sources
from zoo.errors import MenagerieError, SourceError, ValidationError
from zoo.manifest import load_manifest
from zoo.sources.context import Context, resolve_inside
from zoo.sources.use import gate_data
from zoo.speech import held_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from numpy.typing import NDArray

    from menagerie.format.folder import Bundle
    from menagerie.numerics import Dtype, Tolerance
    from transforms.passes.quantisation import Call
    from zoo.spec import InputSpec, ModelSpec, ProgramSpec, SpeechSpec, WordGate


_FULL = 2.0**15  # a sample of 16 bits is a fraction of this


def real_sample(
    spec: ModelSpec, program: ProgramSpec, context: Context
) -> dict[str, torch.Tensor] | None:
    """Return inputs of one call: as few samples as the program takes, or the shortest recording.

    None if the entry has no samples that fit. Raise SourceError if its data cannot be read.
    """
    if spec.accuracy is not None and spec.accuracy.program == program.name:
        found = load_file(gate_data(spec.accuracy, spec.use, context))
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
    """Return the first samples, as many as a call needs; None where they do not fit."""
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


def main() -> int:
    """Check what the order names; say on standard error what is wrong."""
    order = json.load(sys.stdin)
    try:
        folder = Path(order["manifest"]) if order["manifest"] else None
        manifest = load_manifest(folder)
        check_goldens(
            order["model"],
            manifest.spec(order["model"]),
            manifest.origins[order["model"]].file,
            Path(order["bundle"]),
            allow_factories=order["allow_factories"],
        )
    except MenagerieError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def check_goldens(
    name: str, spec: ModelSpec, origin: Path, folder: Path, *, allow_factories: bool
) -> None:
    """Raise ValidationError if a bundle's golden cases are not those of its model.

    Its inputs are then others than the entry's seeds give, or an output is farther from eager's
    than the entry's tolerance; or its gate is another, where that judges. Raise SourceError if the
    model cannot be had here.
    """
    bundle = open_bundle(folder)
    seed = bundle.manifest.random_weights
    loaded = sources.load(
        name, spec, origin=origin, random_weights=seed, allow_factories=allow_factories
    )
    listed = {program.name: program for program in bundle.manifest.programs}
    for program in spec.programs:
        entry = listed[program.name]
        calls = program.calls if entry.state else 1
        cases = make_goldens(
            loaded.module,
            program,
            calls=calls,
            real=real_sample(spec, program, Context(name, origin.parent)),
        )
        found = GoldenCases(bundle.file(entry.golden.path), entry)
        if len(found) != len(cases):
            raise _differs(name, f"{program.name} has {len(found)} cases, not {len(cases)}")
        for number, case in enumerate(cases):
            place = f"{program.name}, case {number}"
            theirs = found.inputs(number)
            for each, tensor in case.inputs.items():
                ours = as_array(tensor)
                if each not in theirs or theirs[each].tobytes() != ours.tobytes():
                    raise _differs(name, f"{place}: input {each} is not the one of its seed")
            outputs = found.outputs(number)
            for output in entry.outputs:
                expected = as_array(case.outputs[output.name])
                result = compare(
                    expected,
                    outputs[output.name],
                    output.dtype,
                    _tolerance(spec, output.dtype),
                    case=number,
                    name=output.name,
                )
                if not result.passed:
                    raise _differs(name, f"{place}: golden output {output.name}: {result.fact}")
    if spec.accuracy_judges:  # nothing else then holds a wrong artifact back
        _check_gates(name, spec, Context(name, origin.parent), loaded.module, bundle)


def _tolerance(spec: ModelSpec, dtype: Dtype) -> Tolerance | None:
    """Of eager beside eager, whatever judges the artifact."""
    asked = spec.tolerance(dtype)
    return DEFAULT_TOLERANCES[dtype] if asked == ANY_FINITE else asked


def _check_gates(
    name: str, spec: ModelSpec, context: Context, module: torch.nn.Module, bundle: Bundle
) -> None:
    """Raise ValidationError for gates with other data, counts of eager's or losses than here."""
    files, programs = bundle.manifest.files, {p.name: p for p in spec.programs}
    if (gate := spec.accuracy) is not None and (claimed := bundle.manifest.accuracy) is not None:
        data = gate_data(gate, spec.use, context)
        own = accuracy_gate(eager_program(module, programs[gate.program]), gate, data, judges=True)
        if not _same(read_tensors(data), read_tensors(bundle.file(files[Role.ACCURACY].path))):
            raise _differs(name, "the data of its accuracy gate are others")
        if replace(claimed, eager_accuracy=0.0) != replace(own.facts, eager_accuracy=0.0) or (
            abs(claimed.eager_accuracy - own.facts.eager_accuracy) > _ROUNDED
        ):
            raise _differs(name, f"its accuracy gate is {claimed}, not {own.facts}")
    if spec.speech is not None and Role.SPEECH in files:
        parts = speech_parts(module, spec.speech, spec.programs, context, judges=True)
        recipe = read_recipe(bundle.file(files[Role.SPEECH].path), [*programs])
        if recipe.gate != parts.recipe.gate:
            raise _differs(name, f"its word gate is {recipe.gate}, not {parts.recipe.gate}")
        recordings = read_tensors(bundle.file(files[Role.HELD_OUT].path))
        if parts.held_out is None or not _same(parts.held_out.tensors(), recordings):
            raise _differs(name, "the recordings of its word gate are others")


def _same(ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> bool:
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[n], theirs[n]) for n in ours)


_ROUNDED = 1e-9


def _differs(name: str, fact: str) -> ValidationError:
    return ValidationError(
        name, f"its golden cases are not those of the model: {fact}", "Do not promote it"
    )


if __name__ == "__main__":
    sys.exit(main())


def samples(program: ProgramSpec, data: Path, *, alone: bool) -> Iterator[Call]:
    """Yield the calls that a file of samples makes for a program of an entry.

    The safetensors have of each input as many slices along the first axis as there are samples,
    named after the input if the program is `alone`, else `<program>/<input>`. Raise SourceError if
    the file lacks an input, has too few samples of one for a call, or of a shape or dtype that the
    program does not take; or if inputs' first axes differ.
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
    """Return the fewest and the most."""
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
