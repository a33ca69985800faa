"""Golden cases, read from safetensors without torch."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from menagerie.errors import ArtifactError
from menagerie.format.bundle_manifest import BundleProgram, TensorSpec
from menagerie.numerics import Tolerance
from menagerie.tensor_files import Array, read_notes, read_tensors
from menagerie.validation.compare import compare
from menagerie.validation.findings import CaseKind, OutputParity
from menagerie.validation.samples import Sample, from_table, read_sample, read_sizes


class GoldenCases:
    """The golden cases of one program: tensors named `<case>/input/<name>`, `<case>/output/<name>`.

    A large output may be kept as a sample, and a large input as a table
    (`menagerie.validation.samples`). Raise ArtifactError if the file is broken or lacks a tensor of
    a case.
    """

    def __init__(self, path: Path, program: BundleProgram) -> None:
        self._tensors, self._notes = read_tensors(path), read_notes(path)
        self._program = program
        if program.golden_cases > len(self._tensors):
            raise ArtifactError(str(path), "has fewer tensors than there are golden cases")
        wanted = {
            f"{case}/{side}/{spec.name}"
            for case in range(program.golden_cases)
            for side, specs in (("input", program.inputs), ("output", program.outputs))
            for spec in specs
        }
        if missing := sorted(wanted - set(self._tensors)):
            raise ArtifactError(str(path), f"golden tensor {missing[0]!r} is missing")
        self._samples: dict[tuple[int, str], Sample] = {}
        for case, spec in itertools.product(range(program.golden_cases), program.outputs):
            try:
                sample = read_sample(self._tensors, case, spec.name)
            except ValueError as error:
                raise ArtifactError(str(path), f"output {case}/{spec.name} {error}") from None
            if sample is not None:
                self._samples[case, spec.name] = sample
        self._sizes: dict[tuple[int, str], tuple[int, ...]] = {}  # of inputs kept as tables
        for case, spec in itertools.product(range(program.golden_cases), program.inputs):
            try:
                sizes = read_sizes(self._tensors, case, spec, program.dimensions)
            except ValueError as error:
                raise ArtifactError(str(path), f"input {case}/{spec.name} {error}") from None
            if sizes is not None:
                self._sizes[case, spec.name] = sizes

    def __len__(self) -> int:
        return self._program.golden_cases

    def run_of(self, case: int) -> range:
        """Return the cases to run in order after a reset, up to and including `case`.

        For a program without state, return the case alone.
        """
        state = self._program.state
        return range(case - case % state.calls if state else case, case + 1)

    def exact(self, case: int, name: str) -> Array | None:
        """Return eager's output of a case in float64, if the bundle has it."""
        found = self._tensors.get(f"{case}/exact/{name}")
        return None if found is None or found.dtype != np.float64 else np.array(found)

    def inputs(self, case: int) -> dict[str, Array]:
        """Return fresh, aligned copies of a case's inputs, so that the originals cannot change."""
        return {spec.name: np.array(self._input(case, spec.name)) for spec in self._program.inputs}

    def outputs(self, case: int) -> dict[str, Array]:
        """Return eager's outputs of a case as the file keeps them: whole or sampled."""
        return {
            spec.name: self._tensors[f"{case}/output/{spec.name}"] for spec in self._program.outputs
        }

    def compare(
        self, case: int, spec: TensorSpec, output: Array, tolerance: Tolerance | None
    ) -> OutputParity:
        """Compare an output of a case with eager's, or with the sample that the file keeps."""
        sample = self._samples.get((case, spec.name))
        both = self.beside(case, spec.name, output)
        found = compare(*both, spec.dtype, tolerance, case=case, name=spec.name)
        if sample is None or output.shape != sample.shape:
            return found
        fact = sample.fact(output, spec.dtype, tolerance) if found.passed else found.fact
        if not fact:
            return replace(found, shape=output.shape)
        where = f"{fact} (of a sample, every {list(sample.steps)})"
        return replace(found, shape=output.shape, passed=False, passed_by=None, fact=where)

    def beside(self, case: int, name: str, output: Array) -> tuple[Array, Array]:
        """Return eager's output and `output`, or the same sample of both."""
        sample = self._samples.get((case, name))
        return (
            (self._tensors[f"{case}/output/{name}"], output)
            if sample is None
            else sample.beside(output)
        )

    def dimensions(self, case: int) -> dict[str, int]:
        """Return the sizes that the program's dynamic dimensions take in a case."""
        return {
            axis: size
            for spec in self._program.inputs
            for axis, size in zip(spec.shape, self._shape(case, spec.name), strict=False)
            if isinstance(axis, str)
        }

    def kind(self, case: int) -> CaseKind | None:
        """Return the kind of a case's inputs; None if the bundle names no known kind."""
        name = self._notes.get(str(case))
        return next((kind for kind in CaseKind if kind.value == name), None)

    def elements(self) -> list[int]:
        """Return the number of elements of each case's inputs."""
        return [
            sum(math.prod(self._shape(case, spec.name)) for spec in self._program.inputs)
            for case in range(len(self))
        ]

    def largest(self) -> int:
        """Return the case with the most input elements, or the first of several."""
        elements = self.elements()
        return elements.index(max(elements))

    def _input(self, case: int, name: str) -> Array:
        kept, sizes = self._tensors[f"{case}/input/{name}"], self._sizes.get((case, name))
        return kept if sizes is None else from_table(kept, sizes)

    def _shape(self, case: int, name: str) -> tuple[int, ...]:
        return self._sizes.get((case, name)) or self._tensors[f"{case}/input/{name}"].shape
