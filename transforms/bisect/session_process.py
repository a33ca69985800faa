"""Runs a bundle once, without torch: `python session_process.py ROOT BUNDLE INPUTS OUTPUTS`.

Started by file, so that the package around it, which loads torch, is not imported. INPUTS and
OUTPUTS are safetensors with the program's tensors by name.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main(root: str, bundle: str, inputs: str, outputs: str) -> int:
    """Run program `main` of `bundle`; ROOT is the folder that holds our packages."""
    sys.path.insert(0, root)
    from menagerie.format.tensors import read_tensors
    from menagerie.session import Session
    from zoo.errors import MenagerieError

    try:
        with Session(bundle, allow_unsigned=True) as session:  # our own piece of a program
            arrays = {name: np.array(value) for name, value in read_tensors(Path(inputs)).items()}
            results = session.run(arrays)
            dtypes = {spec.name: spec.dtype.value for spec in session.outputs}
    except MenagerieError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _write(Path(outputs), results, dtypes)
    return 0


_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64",
    "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def _write(
    path: Path,
    arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]],
    dtypes: dict[str, str],
) -> None:
    """Write safetensors by hand: the library's numpy door knows no bfloat16."""
    header, chunks, end = {}, [], 0
    for name, array in arrays.items():
        content = array.tobytes()
        header[name] = {
            "dtype": _CODES[dtypes[name]],
            "shape": list(array.shape),
            "data_offsets": [end, end + len(content)],
        }
        chunks.append(content)
        end += len(content)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(chunks))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
