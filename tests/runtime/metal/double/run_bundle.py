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

import menagerie.library
from menagerie.format.folder import open_bundle
from menagerie.session import Session
from menagerie.validation.goldens import GoldenCases


def main(library: str, folder: str) -> None:
    """Every golden case of every program."""
    loaded = load_double(Path(library))
    menagerie.library._loaded = lambda _: loaded
    found = {}
    for program in open_bundle(Path(folder)).manifest.programs:
        goldens = GoldenCases(Path(folder) / program.golden.path, program)
        with Session(Path(folder), program=program.name, threads=2) as session:
            for case in range(len(goldens)):
                inputs = goldens.inputs(case)
                session.run(inputs)
                loaded.menagerie_double_reset()
                results = session.run(inputs)
                if case == goldens.largest():
                    counts = {n: loaded.menagerie_double_count(n.encode()) for n in COUNTS}
                    found[f"{program.name}/counts"] = counts
                for name, result in results.items():
                    expected, output = goldens.beside(case, name, result)
                    error = np.abs(output.astype(np.float64) - expected)
                    found[f"{program.name}/{case}/{name}"] = float(error.max(initial=0.0))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
