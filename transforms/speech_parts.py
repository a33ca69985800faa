"""What a bundle that understands speech holds besides programs: its recipe and its gate."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from menagerie.format.bundle_manifest import TensorSpec
from menagerie.speech.recogniser import Program, recogniser_of
from menagerie.speech.transcript import Speller
from menagerie.speech.word_errors import HeldOut, count_errors
from transforms.export.trace import CallableProgram
from zoo.sources.context import resolve_inside
from zoo.speech import held_out, recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from menagerie.speech.recipe import Recipe
    from zoo.sources.context import Context
    from zoo.spec import ProgramSpec, SpeechSpec


class SpeechParts(NamedTuple):
    """The recipe of a bundle, and the recordings of its gate."""

    recipe: Recipe
    held_out: HeldOut | None


def speech_parts(
    model: torch.nn.Module, spec: SpeechSpec, programs: Sequence[ProgramSpec], context: Context
) -> SpeechParts:
    """Read an entry's recordings and count eager's word errors on them.

    Args:
        model: in eval mode.
        spec: what its entry says of speech.
        programs: the entry's.
        context: where the entry stands.

    Raises:
        SourceError: if the recordings cannot be had, or the recipe is none.
    """
    if spec.gate is None:
        return SpeechParts(recipe(spec), None)
    known, plain = held_out(resolve_inside(spec.gate.folder, context), spec.rate), recipe(spec)
    speller = Speller(plain.vocabulary)
    eager = {program.name: eager_program(model, program) for program in programs}
    errors = {
        name: count_errors(recogniser_of(plain, head, eager, context.model), speller, known)
        for name, head in plain.heads.items()
    }
    return SpeechParts(recipe(spec, errors), known)


def eager_program(model: torch.nn.Module, spec: ProgramSpec) -> Program:
    """A program run by eager PyTorch, for the decoding loops that run artifacts."""
    inputs = tuple(TensorSpec(i.name, i.dtype, i.shape) for i in spec.inputs)
    ranges = {n: (d.low, d.high, d.multiple_of) for n, d in spec.dimensions.items()}
    run = partial(_run, CallableProgram(model, spec), [i.name for i in spec.inputs])
    return Program(run, inputs, ranges)


def _run(
    module: CallableProgram, names: list[str], inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    with torch.inference_mode():
        results = module(*(torch.from_numpy(inputs[name]) for name in names))
    return {name: value.numpy() for name, value in results.items()}
