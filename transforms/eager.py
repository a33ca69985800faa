"""Eager PyTorch's results that a model's artifact must match: accuracy, word errors, times."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import AccuracyData, TensorSpec
from menagerie.profile import take_turn
from menagerie.speech.recipe import Recipe
from menagerie.speech.recogniser import Program
from menagerie.speech.word_errors import HeldOut, count_errors
from menagerie.timing import artifact, time_in_turns
from menagerie.validation.checks import accuracy, representative_case
from menagerie.validation.findings import Measurement
from transforms.goldens.cases import input_dtype, model_dtype
from transforms.graph.call_signature import DTYPES, Call, Signature
from transforms.graph.callable import eager_of
from transforms.graph.layouts import as_array
from zoo.errors import SessionError, SourceError
from zoo.progress import in_parts, report_step
from zoo.sources.context import Context, resolve_inside
from zoo.sources.random_weights import torch_threads
from zoo.spec import AccuracyGate, ProgramSpec, SpeechSpec
from zoo.speech import held_out, recipe

if TYPE_CHECKING:
    import numpy as np

    from transforms.export.prepare import Prepared
    from transforms.targets import Target

_SECONDS = 1.0  # for an artifact and eager together


class Gate(NamedTuple):
    """An accuracy gate's data file, and its facts in the bundle, including eager's accuracy."""

    data: Path
    facts: AccuracyData


def accuracy_gate(
    program: Program, spec: AccuracyGate, data: Path, *, judges: bool, trained: bool = True
) -> Gate:
    """Measure eager's accuracy: the fraction of samples that are right by the gate's metric.

    With `judges` the gate allows its largest loss; a model that is not `trained` may get none
    right. The data have the form of `menagerie.validation.checks.accuracy`; raise SourceError if
    they or the program do not fit.
    """
    asked = AccuracyData(
        program=spec.program,
        output=spec.output,
        batch=spec.batch,
        eager_accuracy=0.0,
        metric=None if spec.metric == "top-1" else spec.metric,
    )
    try:
        with torch_threads(1):  # the figure is in the manifest
            found = accuracy(program, asked, data)
    except ArtifactError as error:
        raise SourceError(error.place, error.fact, error.next_step) from error
    if trained and not found.artifact:
        fact = f"eager judges none of {found.samples} samples right, so that nothing can be lost"
        raise SourceError("accuracy", fact, "Correct the labels, or the metric")
    slack = spec.allowed(found.samples, found.artifact) if judges else spec.slack
    return Gate(data, replace(asked, eager_accuracy=found.artifact, slack=slack or None))


class SpeechParts(NamedTuple):
    """The recipe of a bundle, and the recordings of its gate."""

    recipe: Recipe
    held_out: HeldOut | None


def speech_parts(
    model: torch.nn.Module,
    spec: SpeechSpec,
    programs: Sequence[ProgramSpec],
    context: Context,
    *,
    judges: bool,
) -> SpeechParts:
    """Read an entry's recordings, and count eager's word errors on them.

    With `judges` the gate allows its largest loss. Raise SourceError if they cannot be read.
    """
    if spec.gate is None:
        return SpeechParts(recipe(spec), None)
    known, plain = held_out(resolve_inside(spec.gate.folder, context), spec.rate), recipe(spec)
    eager = {program.name: eager_program(model, program) for program in programs}
    errors = {head: count_errors(plain, head, eager, known, context.model) for head in plain.heads}
    share = 1 - max(errors.values()) / max(known.words, 1)
    slack = spec.gate.allowed(known.words, share) if judges else spec.gate.slack
    return SpeechParts(recipe(spec, errors, slack), known)


def eager_program(model: torch.nn.Module, spec: ProgramSpec) -> Program:
    """Return a program run by eager PyTorch, for gates and decoding loops of artifacts."""
    dtype, eager = model_dtype(model), eager_of(model, spec).from_first_state()
    inputs = (TensorSpec(i.name, DTYPES[input_dtype(i, dtype)], i.shape) for i in spec.inputs)
    ranges = {n: (d.low, d.high, d.multiple_of) for n, d in spec.dimensions.items()}
    return called_with_arrays(eager, Signature(tuple(inputs), (), ranges))


def called_with_arrays(eager: Call, signature: Signature) -> Program:
    """Return a program that calls eager PyTorch with arrays; bfloat16 is passed as its bits."""

    def run(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = {spec.name: torch.from_numpy(arrays[spec.name]) for spec in signature.inputs}
        with torch.inference_mode():
            results = eager({
                name: value.view(torch.bfloat16) if value.dtype is torch.uint16 else value
                for name, value in given.items()
            })  # fmt: skip
        return {name: as_array(value) for name, value in results.items()}

    return Program(run, signature.inputs, dict(signature.dimensions))


ProgramTimes = tuple[tuple[str, "Measurement"], ...]  # by program


_log = logging.getLogger(__name__)


def measure_beside_eager(
    bundle: Path,
    programs: Sequence[Prepared],
    target: Target,
    *,
    threads: int,
    seconds: float = _SECONDS,
) -> tuple[ProgramTimes, ProgramTimes]:
    """Time the programs of a bundle and eager PyTorch in turns, on the same inputs and threads.

    The artifact runs in its own process without torch, eager in this one. The golden case is a
    representative one (`menagerie.validation.checks`), by eager's times. Both sides of a program
    take `seconds` together. Return no times if `seconds` is 0, if this machine only emulates the
    target's device, or if a program cannot be run, in which case the validation reports why.
    """
    if seconds <= 0 or target.emulated_here:
        return (), ()
    try:
        with torch.no_grad(), torch_threads(threads):
            pairs = []
            for program in in_parts(programs, start=0.9):
                pairs.append(_in_turns(bundle, program, threads, seconds))
                report_step(f"program {program.name}: timed in turns with eager")
    except SessionError as error:
        _log.warning("No latencies: %s", error)
        return (), ()
    names = [program.name for program in programs]
    artifacts, eager = zip(*pairs, strict=True)
    return tuple(zip(names, artifacts, strict=True)), tuple(zip(names, eager, strict=True))


def _in_turns(
    bundle: Path, program: Prepared, threads: int, seconds: float
) -> tuple[Measurement, Measurement]:
    elements = [sum(t.numel() for t in case.inputs.values()) for case in program.goldens]
    number = representative_case(elements, [case.seconds for case in program.goldens])
    inputs = program.goldens[number].inputs
    with artifact(bundle, program.name, number, threads) as partner:
        # Eager first: the artifact is loaded during its first, uncounted call.
        sides = (lambda: take_turn(lambda: program.eager(inputs)), partner.turn)
        eager, found = time_in_turns(sides, seconds=seconds, threads=threads, case=number)
    return found, eager
