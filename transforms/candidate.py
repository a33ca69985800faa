"""The promoter's check of a candidate: its golden cases, and the gates that judge it.

`tasks.publish` starts it as ``python -m transforms.candidate``, in a process of its own without
keys, with the order as JSON on standard input, because it runs the model's own Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from menagerie.format.bundle_manifest import Role
from menagerie.format.folder import Bundle, open_bundle
from menagerie.numerics import ANY_FINITE, DEFAULT_TOLERANCES, Dtype, Tolerance
from menagerie.speech.recipe import read_recipe
from menagerie.tensor_files import read_tensors
from menagerie.validation.goldens import GoldenCases
from transforms.eager import accuracy_gate, eager_program, speech_parts
from transforms.goldens.cases import make_goldens
from transforms.goldens.entry import real_sample
from transforms.graph.layouts import as_array
from zoo import sources
from zoo.errors import MenagerieError, ValidationError
from zoo.manifest import load_manifest
from zoo.sources.context import Context
from zoo.sources.transformers import with_pieces
from zoo.sources.use import gate_data
from zoo.spec import ModelSpec

_ROUNDED = 1e-9  # of a share of samples


def main() -> int:
    """Check what the order names; write faults to standard error."""
    order = json.load(sys.stdin)
    try:
        folder = Path(order["manifest"]) if order["manifest"] else None
        manifest = load_manifest(folder)
        name, bundle, allow_factories = (order[k] for k in ("model", "bundle", "allow_factories"))
        spec, origin = manifest.spec(name), manifest.origins[name].file
        check_goldens(name, spec, origin, Path(bundle), allow_factories=allow_factories)
    except MenagerieError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def check_goldens(
    name: str, spec: ModelSpec, origin: Path, folder: Path, *, allow_factories: bool
) -> None:
    """Raise ValidationError if a bundle's golden cases are not those of its model.

    That is, if inputs differ from those of the entry's seeds, if an output is farther from eager's
    than the entry's tolerance, or if its gate differs, where a gate judges. Raise SourceError if
    the model is not available here.
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
            for output in entry.outputs:
                expected = as_array(case.outputs[output.name])
                result = found.compare(number, output, expected, _tolerance(spec, output.dtype))
                if not result.passed:
                    raise _differs(name, f"{place}: golden output {output.name}: {result.fact}")
    if spec.accuracy_judges:  # then nothing else stops a wrong artifact
        _check_gates(name, spec, Context(name, origin.parent), loaded.module, bundle)


def _tolerance(spec: ModelSpec, dtype: Dtype) -> Tolerance | None:
    """Return the tolerance between two runs of eager, whatever judges the artifact."""
    asked = spec.tolerance(dtype)
    return DEFAULT_TOLERANCES[dtype] if asked == ANY_FINITE else asked


def _check_gates(
    name: str, spec: ModelSpec, context: Context, module: torch.nn.Module, bundle: Bundle
) -> None:
    """Raise ValidationError for gates whose data, eager counts or losses differ from those here."""
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
    if spec.speech is not None:
        seeded = bundle.manifest.random_weights is not None
        speech = spec.speech if seeded else with_pieces(spec.speech, spec.source, context)
        parts = speech_parts(module, speech, spec.programs, context, judges=True)
        if Role.SPEECH not in files or Role.HELD_OUT not in files:
            raise _differs(name, "it has no word gate")
        recipe = read_recipe(bundle.file(files[Role.SPEECH].path), [*programs])
        if recipe.gate != parts.recipe.gate:
            raise _differs(name, f"its word gate is {recipe.gate}, not {parts.recipe.gate}")
        recordings = read_tensors(bundle.file(files[Role.HELD_OUT].path))
        if parts.held_out is None or not _same(parts.held_out.tensors(), recordings):
            raise _differs(name, "the recordings of its word gate are others")


def _same(ours: Mapping[str, NDArray[Any]], theirs: Mapping[str, NDArray[Any]]) -> bool:
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[n], theirs[n]) for n in ours)


def _differs(name: str, fact: str) -> ValidationError:
    return ValidationError(
        name, f"its golden cases or gates are not those of the model: {fact}", "Do not promote it"
    )


if __name__ == "__main__":
    sys.exit(main())
