"""Golden cases and gate data, read from safetensors without torch.

The safetensors library checks the file; its numpy door knows no bfloat16, so the bytes are mapped
here, and bfloat16 is returned as its 16 bits in uint16.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from zoo.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from menagerie.format.bundle_manifest import BundleProgram
    from menagerie.validation.elements import Array

__all__ = ["GoldenCases", "read_tensors"]

_DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_LENGTH_BYTES = 8


def read_tensors(path: Path) -> dict[str, Array]:
    """Maps every tensor of a safetensors file, read-only; bfloat16 as uint16.

    Raises:
        ArtifactError: the file is not valid safetensors, or holds an element type of no program.
    """
    try:
        with safe_open(path, framework="np"):
            pass  # opening is the library's whole check: bounds, overlaps, holes, shapes
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        content = _map(path, _LENGTH_BYTES + length)
        return {name: _tensor(content, entry) for name, entry in header.items()}
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise ArtifactError(str(path), f"not readable as safetensors ({error})") from error


def _map(path: Path, offset: int) -> Array:
    """The bytes of a file from `offset` on; an empty map is an error to the system, not to us."""
    if path.stat().st_size == offset:
        return np.empty(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, "r", offset=offset))


def _tensor(content: Array, entry: Mapping[str, Any]) -> Array:
    begin, end = entry["data_offsets"]
    return content[begin:end].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])


class GoldenCases:
    """The golden cases of one program: tensors named `<case>/input/<name>`, `<case>/output/<name>`.

    Args:
        path: the program's golden file.
        program: its entry in the bundle's manifest.

    Raises:
        ArtifactError: the file is broken or lacks a tensor of a case.
    """

    def __init__(self, path: Path, program: BundleProgram) -> None:
        self._tensors = read_tensors(path)
        self._program = program
        wanted = {
            f"{case}/{side}/{spec.name}"
            for case in range(program.golden_cases)
            for side, specs in (("input", program.inputs), ("output", program.outputs))
            for spec in specs
        }
        if missing := sorted(wanted - set(self._tensors)):
            raise ArtifactError(str(path), f"golden tensor {missing[0]!r} is missing")

    def __len__(self) -> int:
        return self._program.golden_cases

    def inputs(self, case: int) -> dict[str, Array]:
        """Fresh, aligned copies of a case's inputs, so that nothing can alter the file's."""
        return {spec.name: np.array(self._input(case, spec.name)) for spec in self._program.inputs}

    def outputs(self, case: int) -> dict[str, Array]:
        """Eager's outputs in a case."""
        return {
            spec.name: self._tensors[f"{case}/output/{spec.name}"] for spec in self._program.outputs
        }

    def dimensions(self, case: int) -> dict[str, int]:
        """The sizes that the program's dynamic dimensions take in a case."""
        return {
            axis: size
            for spec in self._program.inputs
            for axis, size in zip(spec.shape, self._input(case, spec.name).shape, strict=False)
            if isinstance(axis, str)
        }

    def largest(self) -> int:
        """The case with the most input elements, the first of equals: the one that is timed."""
        elements = [
            sum(self._input(case, spec.name).size for spec in self._program.inputs)
            for case in range(len(self))
        ]
        return elements.index(max(elements))

    def _input(self, case: int, name: str) -> Array:
        return self._tensors[f"{case}/input/{name}"]
