"""Instructions that a start of two small models, and of the command line twice, takes: a guard.

    python benchmarks/instructions.py            # beside what is recorded
    python benchmarks/instructions.py --record   # the new counts become what is recorded

Cachegrind (Debian's package valgrind) runs each program on a processor of its own making, so that a
count is the same on a busy machine. It depends on what was compiled by what: counts are recorded
for each kind of machine. `menagerie-run` opens the bundle, computes its first golden case once and
compares it; the models are trained ones of the zoo. `zoo list` takes more with each model more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.library import native_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODELS = ("digits_cnn", "spoken_digits")
MOST_CHANGE = 0.03
_RECORD = Path(__file__).with_name("instructions.json")
_COUNT = re.compile(r"I +refs: +([\d,]+)")


def kind() -> str:
    """Return the versions that counts depend on: of the C++ compiler, C library and Python."""
    asked = [shutil.which("c++") or "c++", "-dumpfullversion"]
    compiler = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    return f"c++ {compiler}, {'-'.join(platform.libc_ver())}, Python {platform.python_version()}"


def recorded() -> Mapping[str, int] | None:
    """Return counts by command on this kind of machine; None if none are recorded."""
    found: Mapping[str, int] | None = json.loads(_RECORD.read_text()).get(kind())
    return found


def commands(folder: Path, models: Sequence[str] = MODELS) -> dict[str, list[str]]:
    """Return the commands to count, by name; the models are converted into `folder`.

    Raises:
        CalledProcessError: a model cannot be converted; it has said why.
    """
    zoo, store = str(Path(sys.executable).with_name("zoo")), str(folder / "store")
    _said([zoo, "convert", *models, "--target", "cpu", "--store", store])
    run = [str(native_tool()), "--cases", "1", "--threads", "1", "--allow-unsigned"]
    made = {}
    for model in models:
        bundle = str(folder / model)
        _said([zoo, "pull", model, "--target", "cpu", "--store", store, "--output", bundle])
        made[model] = [*run, bundle]
    typed = {f"zoo {word}": [sys.executable, zoo, word] for word in ("--help", "list")}
    return made | typed


def _said(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def counted(command: Sequence[str], folder: Path) -> int:
    """Count a command's instructions in its second run; the first one writes bytecode to `folder`.

    Raises:
        CalledProcessError: it fails.
    """
    kept = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONHASHSEED": "0"}
    environment = {**os.environ, **kept, "LC_ALL": "C", "COLUMNS": "80"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    counter = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    printed = subprocess.run(
        [*counter, *command], check=True, env=environment, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ).stderr  # fmt: skip
    [count] = _COUNT.findall(printed)
    return int(count.replace(",", ""))


def change(count: int, before: int) -> float:
    """Return the growth as a share of the earlier count."""
    return count / before - 1


def main() -> None:
    """Print a line per command; with --record, save the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="keep these counts")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("apt install valgrind")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found = {name: counted(command, folder) for name, command in commands(folder).items()}
    before = recorded() or {}
    for name, count in found.items():
        more = f", {change(count, before[name]):+.2%}" if name in before else ""
        print(f"{name}: {count:,} instructions{more}")
    if options.record:
        kept = json.loads(_RECORD.read_text()) | {kind(): found}
        _RECORD.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
