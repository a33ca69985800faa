"""Rerun a reproducer: `python -m transforms.bisect [--unpickle] FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from menagerie.figures import decibels, error
from transforms.bisect.reproducer import rerun
from zoo.errors import MenagerieError, UsageError


def main(arguments: Sequence[str]) -> int:
    """Rerun the reproducer in a folder; return 0 if it agrees, 1 if it diverges, 2 for misuse."""
    folders = [each for each in arguments if each != "--unpickle"]
    if len(folders) != 1:
        sys.stderr.write("usage: python -m transforms.bisect [--unpickle] FOLDER\n")
        return UsageError.exit_code
    try:
        outputs = rerun(Path(folders[0]), unpickle=len(folders) < len(arguments))
    except MenagerieError as refused:
        sys.stderr.write(f"{refused}\n")
        return refused.exit_code
    for name, seen in outputs.items():
        distance = f"max abs error {error(seen.max_abs)}, SNR {decibels(seen.snr_db)}"
        verdict = "within tolerance" if seen.passed else "WRONG"
        sys.stdout.write(f"{name}: {distance}, {verdict}\n")
    return 0 if all(seen.passed for seen in outputs.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
