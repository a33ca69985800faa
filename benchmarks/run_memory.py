"""What opening and running a bundle takes of memory: `run_memory.py BUNDLE PROGRAM`.

In a process of its own, which runs the first golden case on one thread. It prints the most bytes
that were resident, beyond what was before the bundle was opened: Python, numpy and the inputs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from menagerie.format.folder import open_bundle
from menagerie.process import peak_memory_bytes
from menagerie.session import Session
from menagerie.validation.goldens import GoldenCases


def main() -> None:
    """Print the bytes."""
    folder, program = Path(sys.argv[1]), sys.argv[2]
    bundle = open_bundle(folder, check_hashes=False)
    [entry] = [each for each in bundle.manifest.programs if each.name == program]
    inputs = GoldenCases(bundle.file(entry.golden.path), entry).inputs(0)
    before = peak_memory_bytes()
    with Session(bundle.folder, program, 1, allow_unsigned=True) as session:
        session.run(inputs)
    print(peak_memory_bytes() - before)


if __name__ == "__main__":
    main()
