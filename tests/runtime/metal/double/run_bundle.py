"""Runs a bundle's programs on the double, twice each: `run_bundle.py LIBRARY FOLDER`.

Prints, as JSON, the largest error of each output against the golden cases, and what was counted in
the case with the most input elements.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from load_double import COUNTS, load_double
from safetensors.numpy import load_file

import menagerie.library
from menagerie.format.folder import open_bundle
from menagerie.session import Session


def main(library: str, folder: str) -> None:
    """Every golden case of every program."""
    loaded = load_double(Path(library))
    menagerie.library._loaded = lambda _: loaded
    found = {}
    for program in open_bundle(Path(folder)).manifest.programs:
        cases = load_file(Path(folder) / program.golden.path)
        largest = max(range(program.golden_cases), key=lambda case: _elements(cases, case))
        with Session(Path(folder), program=program.name, threads=2) as session:
            for case in range(program.golden_cases):
                inputs = _of(cases, f"{case}/input/")
                session.run(inputs)
                loaded.menagerie_double_reset()
                results = session.run(inputs)
                if case == largest:
                    counts = {n: loaded.menagerie_double_count(n.encode()) for n in COUNTS}
                    found[f"{program.name}/counts"] = counts
                for name, expected in _of(cases, f"{case}/output/").items():
                    error = np.abs(results[name].astype(np.float64) - expected)
                    found[f"{program.name}/{case}/{name}"] = float(error.max(initial=0.0))
    print(json.dumps(found))


def _elements(cases: dict[str, np.ndarray], case: int) -> int:
    return sum(value.size for value in _of(cases, f"{case}/input/").values())


def _of(cases: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(prefix): v for k, v in cases.items() if k.startswith(prefix)}


if __name__ == "__main__":
    main(*sys.argv[1:])
