"""Reading safetensors over numpy, every rule of the format checked.

The format is described at https://github.com/huggingface/safetensors#format: eight bytes with the
header's length, a JSON header, and the tensors' bytes without holes or overlaps. numpy knows no
bfloat16: it is returned as its 16 bits in uint16.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from menagerie.errors import ArtifactError
from menagerie.typed_json import check, load, whole_of_64_bits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["read_notes", "read_tensors"]

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
_MOST_HEADER_BYTES = 16 * 2**20  # of a model with 100,000 tensors
_MOST_AXES = 64  # numpy's limit


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Maps every tensor of a safetensors file, read-only; bfloat16 as uint16.

    Raises:
        ArtifactError: the file is not valid safetensors, or holds an element type of no program.
    """
    try:
        header, offset = _header(path)
        return _tensors(_map(path, offset), header)
    except (OSError, ValueError) as error:
        raise ArtifactError(str(path), f"not readable as safetensors ({error})") from error


def read_notes(path: Path) -> dict[str, str]:
    """What a safetensors file says beside its tensors, as `__metadata__`; empty without any.

    Raises:
        ArtifactError: it cannot be read.
    """
    try:
        header, _ = _header(path)
        notes = header.get("__metadata__", {}) if isinstance(header, dict) else {}
        return dict(check(dict[str, str], notes, "__metadata__"))
    except (OSError, ValueError) as error:
        raise ArtifactError(str(path), f"not readable as safetensors ({error})") from error


def _header(path: Path) -> tuple[Any, int]:
    """The header's JSON, and where the tensors' bytes begin."""
    with path.open("rb") as file:
        length = _bounded(int.from_bytes(file.read(_LENGTH_BYTES), "little"))
        return load(file.read(length), whole=whole_of_64_bits), _LENGTH_BYTES + length


def _bounded(length: int) -> int:
    if length > _MOST_HEADER_BYTES:
        raise ValueError(f"its header claims {length:,} bytes")
    return length


def _tensors(content: NDArray[Any], header: Any) -> dict[str, NDArray[Any]]:
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")  # noqa: TRY004 - told as all other faults
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
    """A tensor's type, shape and place; its bytes are as many as its shape takes."""
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
    """The bytes of a file from `offset` on; an empty map is an error to the system, not to us."""
    size = path.stat().st_size
    if size < offset:
        raise ValueError("it ends within its header")
    if size == offset:
        return np.empty(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, "r", offset=offset))
