"""Runs the table of operator cases, and its stories, on the double: `run_cases.py LIBRARY`.

Each name is printed before it runs, and its outcome after: a fault of the double ends the process.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).parents[3] / "cases"))

import shim_device
from load_double import load_double
from shim_device import KINDS, Device
from stories import STORIES
from table import CASES
from test_operators import check, has

if TYPE_CHECKING:
    from collections.abc import Callable

METAL = next(kind for kind in KINDS if kind.target == "metal")


def main(path: str, only: str = "") -> int:
    """Runs all cases whose name contains `only`; 1 if one has failed."""
    good = True
    shim_device.library = lambda _: load_double(Path(path))
    for case in CASES:
        if not case.runs_on("metal") or not has(METAL, case.operator) or only not in repr(case):
            continue
        good &= _run(repr(case), lambda case=case: check(Device(METAL), case, dict(case.arguments)))
    for story, names in STORIES:
        offered = all("metal" in shim_device.shims()[name].targets for name in names)
        if offered and only in story.__name__:
            good &= _run(story.__name__, lambda story=story: story(Device(METAL)))

    return 0 if good else 1


def _run(name: str, body: Callable[[], None]) -> bool:
    print(json.dumps({"begins": name}), flush=True)
    try:
        body()
    except Exception:  # noqa: BLE001 (each case is reported)
        print(json.dumps({"ends": name, "failure": traceback.format_exc(limit=-2)}), flush=True)
        return False
    print(json.dumps({"ends": name, "failure": None}), flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
