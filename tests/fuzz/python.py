"""One Python reader under atheris: `python tests/fuzz/python.py npy -max_total_time=60 corpus`."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from pathlib import Path
from types import FunctionType

import atheris

sys.path.insert(0, str(Path(__file__).parent))

from readers import takes

COUNTED = ("menagerie", "zoo", "zipfile", "tuf.api", "securesystemslib", "numpy.lib._format_impl")


def main() -> None:
    """Hands the reader of that name to libFuzzer, until it finds something or the time is over."""
    name = sys.argv.pop(1)
    # not at their import: an editable install has a loader of its own, past which atheris gets none
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and str(each.__module__).startswith(COUNTED):
            atheris.instrument_func(each)
    logging.disable()
    warnings.simplefilter("ignore")
    atheris.Setup(sys.argv, lambda content: takes(name, content))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
