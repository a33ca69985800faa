"""Runs a reproducer again: `python -m transforms.bisect [--unpickle] FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from transforms.bisect.reproducer import rerun
from zoo.errors import MenagerieError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Rerun the reproducer in a folder; 0 when it no longer diverges, 1 when it does, 2: misuse."""
    folders = [each for each in arguments if each != "--unpickle"]
    if len(folders) != 1:
        sys.stderr.write("usage: python -m transforms.bisect [--unpickle] FOLDER\n")
        return UsageError.exit_code
    try:
        result = rerun(Path(folders[0]), unpickle=len(folders) < len(arguments))
    except MenagerieError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{result}\n")
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
