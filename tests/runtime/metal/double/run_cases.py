"""Runs the table of operator cases, and its stories, on the double: `run_cases.py LIBRARY`.

Each name is printed before it runs, and its outcome after: a fault of the double ends the process.
"""

from __future__ import annotations

import ctypes
import json
import sys
import traceback
from pathlib import Path

_TESTS = Path(__file__).parents[3]
sys.path[:0] = [str(_TESTS / "cases"), str(Path(__file__).parent)]

import shim_device
from load_double import load_double
from shim_device import KINDS, Device
from stories import STORIES
from table import CASES
from test_operators import check, has

METAL = next(kind for kind in KINDS if kind.target == "metal")


def main(path: str, only: str = "") -> None:
    """Runs all cases whose name contains `only`."""
    shim_device.library = lambda _: load_double(Path(path))
    for case in CASES:
        if not case.runs_on("metal") or not has(METAL, case.operator) or only not in repr(case):
            continue
        _run(repr(case), lambda case=case: check(Device(METAL), case, dict(case.arguments)))
    for story, names in STORIES:
        if all("metal" in shim_device.shims()[name].targets for name in names):
            if only in story.__name__:
                _run(story.__name__, lambda story=story: story(Device(METAL)))


def _run(name: str, body: object) -> None:
    print(json.dumps({"begins": name}), flush=True)
    try:
        body()
    except Exception:
        print(json.dumps({"ends": name, "failure": traceback.format_exc(limit=-2)}), flush=True)
    else:
        print(json.dumps({"ends": name, "failure": None}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
