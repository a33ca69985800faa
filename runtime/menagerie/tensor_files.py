"""Tensors in numpy files: what a command line feeds a program, and what it keeps of its answer."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from menagerie.errors import UsageError
from menagerie.numerics import Dtype
from menagerie.validation.elements import Array, narrow, widen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from menagerie.format.bundle_manifest import TensorSpec

__all__ = ["read_array", "read_inputs", "readable", "write_outputs"]

_ZIP = b"PK"  # as `.npz` begins


def read_inputs(given: Sequence[str], wanted: Sequence[TensorSpec]) -> dict[str, Array]:
    """The arrays by input name.

    Args:
        given: `NAME=FILE.npy` for each input; a bare path goes to the only input.
        wanted: what the program takes. bfloat16 may be given as float32, which numpy has.

    Raises:
        UsageError: a name is unknown or missing, or a file is not one array.
    """
    listing = ", ".join(f"{w.name}: {w.dtype} {[*w.shape]}".replace("'", "") for w in wanted)
    arrays = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals:
            if len(wanted) != 1:
                raise UsageError("--input", f"{text!r} names no input", f"NAME=FILE: {listing}")
            name, path = wanted[0].name, text
        arrays[name] = read_array(path)
    if unknown := sorted(set(arrays) - {w.name for w in wanted}):
        raise UsageError("--input", f"there is no {unknown[0]!r}", f"The program takes {listing}")
    if missing := [w.name for w in wanted if w.name not in arrays]:
        raise UsageError("--input", f"{missing[0]!r} is missing", f"The program takes {listing}")
    return {w.name: _taken(arrays[w.name], w.dtype) for w in wanted}


def read_array(path: str) -> Array:
    """The array of a `.npy` file.

    Raises:
        UsageError: it cannot be read, or is not one array.
    """
    try:
        with Path(path).open("rb") as file:
            several = file.read(len(_ZIP)) == _ZIP
        # Mapped, an array is no larger than its file, whatever its header says. numpy reads that
        # header by Python's own parser, which ends in any of ten exceptions.
        array = None if several else np.array(np.lib.format.open_memmap(path, mode="r"))
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(path, f"cannot be read as .npy: {reason}") from error
    if array is None:
        raise UsageError(path, "holds several arrays", "Give a .npy file for each input")
    return array


def readable(array: Array, dtype: Dtype) -> Array:
    """An output of a type that numpy has; bfloat16 as the float32 that it is a part of."""
    return widen(array, dtype).astype("float32") if dtype is Dtype.BFLOAT16 else array


def write_outputs(answers: Mapping[str, Array], path: Path) -> None:
    """Writes one output to a `.npy` file, or all of them to a `.npz` file by their names.

    Raises:
        UsageError: there are several, and `path` ends in something else than `.npz`.
    """
    if path.suffix == ".npz":
        _write_archive(answers, path)
    elif len(answers) == 1:
        np.save(path, next(iter(answers.values())), allow_pickle=False)
    else:
        names = ", ".join(answers)
        raise UsageError(str(path), f"there are several outputs ({names})", "Name a .npz file")


def _write_archive(answers: Mapping[str, Array], path: Path) -> None:
    """As `numpy.savez`, which would take an output called `file` for its own argument."""
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, value in answers.items():
            if "/" in name or "\\" in name or name in {"", ".", ".."}:
                raise UsageError(str(path), f"{name!r} is no name for a file", "Write .npy files")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)


def _taken(array: Array, dtype: Dtype) -> Array:
    """A float32 array in bfloat16, where that is wanted; any other unchanged."""
    return narrow(array, dtype) if dtype is Dtype.BFLOAT16 and array.dtype == "float32" else array
