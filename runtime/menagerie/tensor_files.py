"""Tensors in safetensors and numpy files, and the element types that numpy lacks.

numpy has no bfloat16: its 16 bits, the upper half of a float32, are held as uint16. Safetensors
(https://github.com/huggingface/safetensors#format) are eight bytes with the header's length, a JSON
header, and the tensors' bytes without holes or overlaps.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from menagerie.errors import ArtifactError, UsageError
from menagerie.numerics import Dtype
from menagerie.typed_json import check, load

if TYPE_CHECKING:
    from menagerie.format.bundle_manifest import TensorSpec

_ZIP = b"PK"  # the first bytes of `.npz`
Array = NDArray[Any]
Float64 = NDArray[np.float64]
_LOWER_HALF = 16
_QUIET_NAN = np.uint16(0x7FC0)  # replaces a NaN, whose rounded bits could be an infinity
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
_MOST_HEADER_BYTES = 16 * 2**20  # for a model with 100,000 tensors
_MOST_AXES = 64  # numpy's limit


def read_inputs(given: Sequence[str], wanted: Sequence[TensorSpec]) -> dict[str, Array]:
    """Read arrays by input name: `NAME=FILE.npy` for each; a bare path is for the only input.

    float32, which numpy has, is accepted for bfloat16. Raise UsageError if a name is unknown or
    missing, or a file is not one array.
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
    for w in wanted:
        if w.dtype is Dtype.BFLOAT16 and arrays[w.name].dtype == "float32":
            arrays[w.name] = narrow(arrays[w.name], w.dtype)
    return {w.name: arrays[w.name] for w in wanted}


def read_array(path: str) -> Array:
    """Read a `.npy` file; raise UsageError if it cannot be read or is not one array."""
    try:
        with Path(path).open("rb") as file:
            several = file.read(len(_ZIP)) == _ZIP
        # A mapped array is no larger than its file, whatever its header says. numpy parses that
        # header with Python's own parser, which may raise any of ten exceptions.
        array = None if several else np.array(np.lib.format.open_memmap(path, mode="r"))
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(path, f"cannot be read as .npy: {reason}") from error
    if array is None:
        raise UsageError(path, "holds several arrays", "Give a .npy file for each input")
    return array


def readable(array: Array, dtype: Dtype) -> Array:
    """Return an output in a type of numpy; bfloat16 as the float32 with the same value."""
    return widen(array, dtype).astype("float32") if dtype is Dtype.BFLOAT16 else array


def write_outputs(answers: Mapping[str, Array], path: Path) -> None:
    """Write one output to a `.npy` file, or all of them to a `.npz` file by their names.

    Raise UsageError if `path` has another suffix, or `.npy` for several outputs.
    """
    if path.suffix == ".npz":
        _write_archive(answers, path)
    elif path.suffix not in {"", ".npy"}:
        raise UsageError(str(path), "ends in neither .npy nor .npz", "Rename the file")
    elif len(answers) == 1:
        np.save(path, next(iter(answers.values())), allow_pickle=False)
    else:
        names = ", ".join(answers)
        raise UsageError(str(path), f"there are several outputs ({names})", "Name a .npz file")


def _write_archive(answers: Mapping[str, Array], path: Path) -> None:
    """Write like `numpy.savez`, which would take an output called `file` for its argument."""
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name, value in answers.items():
            if "/" in name or "\\" in name or name in {"", ".", ".."}:
                raise UsageError(str(path), f"{name!r} cannot name a file", "Write .npy files")
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)


def stored(dtype: Dtype) -> np.dtype[Any]:
    """Return the numpy type in which tensors of `dtype` are held."""
    return np.dtype("uint16" if dtype is Dtype.BFLOAT16 else dtype.value)


def widen(array: Array, dtype: Dtype) -> Float64:
    """Return `array`, held as `stored(dtype)`, as float64, which represents all its values."""
    if dtype is Dtype.BFLOAT16:
        array = (array.astype(np.uint32) << _LOWER_HALF).view(np.float32)
    return array.astype(np.float64)


def narrow(array: Array, dtype: Dtype) -> Array:
    """Round floats to nearest even, like torch, for a program that takes `dtype`.

    uint16 is taken for the bits of bfloat16; an array of the right type is returned itself.
    Raise ValueError if one of the two is not a floating type, so that values could be lost.
    """
    if array.dtype == stored(dtype):
        return array
    given = Dtype.BFLOAT16 if array.dtype == np.uint16 else array.dtype
    if not dtype.is_floating or not (given is Dtype.BFLOAT16 or array.dtype.kind == "f"):
        raise ValueError(f"is {given}, the program takes {dtype}")
    single = widen(array, Dtype.BFLOAT16) if given is Dtype.BFLOAT16 else array
    with np.errstate(over="ignore"):  # to infinity, like torch
        if dtype is not Dtype.BFLOAT16:
            return single.astype(stored(dtype))
        bits = single.astype(np.float32).view(np.uint32)
    odd = (bits >> _LOWER_HALF) & 1
    rounded = ((bits.astype(np.uint64) + 0x7FFF + odd) >> _LOWER_HALF).astype(np.uint16)
    return np.where(np.isnan(single), _QUIET_NAN, rounded)


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Map every tensor of a safetensors file, read-only; bfloat16 as uint16.

    Raise ArtifactError if the file is not valid, or has an element type of no program.
    """
    try:
        header, offset = _header(path)
        return _tensors(_map(path, offset), header)
    except (OSError, ValueError) as error:
        raise ArtifactError(str(path), f"not readable as safetensors ({error})") from error


def read_notes(path: Path) -> dict[str, str]:
    """Read `__metadata__` of a safetensors file, if any; raise ArtifactError if unreadable."""
    try:
        header, _ = _header(path)
        notes = header.get("__metadata__", {}) if isinstance(header, dict) else {}
        return dict(check(dict[str, str], notes, "__metadata__"))
    except (OSError, ValueError) as error:
        raise ArtifactError(str(path), f"not readable as safetensors ({error})") from error


def _header(path: Path) -> tuple[Any, int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > _MOST_HEADER_BYTES:
            raise ValueError(f"its header claims {length:,} bytes")
        return load(file.read(length)), _LENGTH_BYTES + length


def _tensors(content: NDArray[Any], header: Any) -> dict[str, NDArray[Any]]:
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")  # noqa: TRY004 - reported as all other faults
    header.pop("__metadata__", None)
    entries = {name: _entry(name, fields) for name, fields in header.items()}
    end = 0
    for name, (_, _, start, stop) in sorted(entries.items(), key=lambda entry: entry[1][2:]):
        if start != end:
            raise ValueError(
                f"{name!r} begins at {start}, where the tensors before it end at {end}"
            )
        end = stop
    if end != content.size:
        raise ValueError(f"its tensors take {end:,} bytes of {content.size:,}")
    return {
        name: content[start:stop].view(dtype).reshape(shape)
        for name, (dtype, shape, start, stop) in entries.items()
    }


def _entry(name: str, fields: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Return a tensor's type, shape and location; its number of bytes must match its shape."""
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name!r} has not dtype, shape and data_offsets")
    if not isinstance(fields["dtype"], str) or fields["dtype"] not in _DTYPES:
        raise ValueError(f"{name!r} has elements of type {str(fields['dtype'])[:20]!r}")
    dtype = _DTYPES[fields["dtype"]]
    shape: tuple[int, ...] = check(tuple[int, ...], fields["shape"], name)
    start, stop = check(tuple[int, int], fields["data_offsets"], name)
    if len(shape) > _MOST_AXES:  # the product of a million numbers would take hours
        raise ValueError(f"{name!r} has {len(shape):,} axes")
    if min((*shape, start), default=0) < 0 or stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name!r} of shape {list(shape)} does not take {stop - start} bytes")
    return dtype, shape, start, stop


def _map(path: Path, offset: int) -> NDArray[Any]:
    """Map a file's bytes from `offset` on; return an empty array if the system could map none."""
    size = path.stat().st_size
    if size < offset:
        raise ValueError("it ends within its header")
    if size == offset:
        return np.empty(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, "r", offset=offset))
