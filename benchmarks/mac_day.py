"""The first day on a Mac: everything that is to be known there, into one folder to send back.

    make mac-day

On a Mac: the table of operators on the GPU; single products of growing size by our kernels, by
PyTorch, by mlx if it is installed; then the models converted, confirmed and timed,
beside eager PyTorch.
On another system the same runs on the double of Apple's classes, as the report then says.
A step that fails is noted and the next one begins; the last line says how many did.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.metal import models_for_metal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIMIT = 3600.0  # seconds for a step, so that a hanging GPU ends only a step
_TIMED_OUT = 124  # as of timeout(1)

# Tests for a real GPU; the others of `tests/runtime/metal` need Linux's emulated device.
ON_THE_GPU = (
    "tests/cases",
    "tests/runtime/metal/test_handles.py",
    "tests/runtime/metal/test_launch.py",
    "tests/runtime/metal/test_integer_reductions.py",
)

_ROOT = Path(__file__).parents[1]
_DOUBLE = "tests/runtime/metal/double"
_REPORT = "report.md"


@dataclass(frozen=True)
class Step:
    """One command, whose whole output becomes `<name>.txt`."""

    name: str
    command: tuple[str, ...]


def steps(models: Sequence[str], folder: Path, *, on_mac: bool) -> tuple[Step, ...]:
    """Return the steps to run, in order; bundles are pulled into the folder."""
    python = sys.executable
    zoo = str(Path(python).with_name("zoo"))
    platform_ = () if on_mac else ("--platform", "metal-macos-arm64")
    bundles = {model: str(folder / model) for model in models}
    return (
        Step("doctor", (zoo, "doctor")),
        *(_operators_on_the_gpu(python) if on_mac else _operators_on_the_double(python)),
        Step("pieces", (python, "-m", "benchmarks.mac_pieces")),
        *(
            Step(f"convert-{m}", (zoo, "convert", m, "--target", "metal", "--random-weights", "0"))
            for m in models
        ),
        *(Step(f"confirm-{m}", (zoo, "verify", m, "--target", "metal")) for m in models),
        *(
            Step(f"pull-{m}", (zoo, "pull", m, "--target", "metal", *platform_, "-o", bundle))
            for m, bundle in bundles.items()
        ),
        *(
            Step(f"contenders-{m}", (python, "-m", "benchmarks.mac_contenders", m, bundle))
            for m, bundle in bundles.items()
        ),
        *(() if on_mac else (Step("counts", (python, "-m", "benchmarks.metal", *models)),)),
        *(Step(f"report-{m}", (zoo, "report", m, "--target", "metal")) for m in models),
    )


def _operators_on_the_gpu(python: str) -> tuple[Step, ...]:
    return (Step("operators", (python, "-m", "pytest", "-n0", "-q", *ON_THE_GPU)),)


def _operators_on_the_double(python: str) -> tuple[Step, ...]:
    library = str(_ROOT / "build" / "double" / "libmenagerie_metal.so")
    return (
        Step("double", (python, f"{_DOUBLE}/load_double.py")),
        Step("operators", (python, f"{_DOUBLE}/run_cases.py", library)),
    )


def run(step: Step, folder: Path, limit: float = LIMIT) -> str:
    """Run a step with its time limit, and return its line of the report."""
    begun = time.monotonic()
    said, code = _output(step, limit)
    (folder / f"{step.name}.txt").write_text(f"$ {' '.join(step.command)}\n{said}")
    outcome = "passed" if code == 0 else f"FAILED with {code}"
    return f"| {step.name} | {outcome} | {time.monotonic() - begun:.0f} s |"


def _output(step: Step, limit: float) -> tuple[str, int]:
    """Return a command's output and its exit code, the shell's if it cannot run."""
    try:
        process = subprocess.Popen(
            step.command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"{error}\n", 127
    with process:
        try:
            return process.communicate(timeout=limit)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children would slow the next step
            return f"{process.communicate()[0]}\nended after {limit:.0f} s\n", _TIMED_OUT


def empty(folder: Path) -> Path:
    """Return the folder, absolute and empty; remove files of an earlier day.

    Raises:
        SystemExit: it holds foreign files, which must not be removed.
    """
    folder = folder.absolute()
    if (folder / _REPORT).is_file():
        shutil.rmtree(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SystemExit(f"{folder}: holds no earlier day's report. Choose another with -o")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_all(wanted: Iterable[Step], folder: Path, head: Sequence[str]) -> int:
    """Run the steps, rewrite report.md after each one, and return the number of failures."""
    rows: list[str] = []
    (folder / _REPORT).write_text("\n".join(head))  # marks an interrupted day too
    for step in wanted:
        rows.append(run(step, folder))
        print(rows[-1], flush=True)
        (folder / _REPORT).write_text("\n".join([*head, *rows, ""]))
    failed = sum("FAILED" in row for row in rows)
    print(f"\n{failed} of {len(rows)} steps failed. Send back the folder {folder}")
    return failed


def main() -> int:
    """Write the folder; return 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "models",
        nargs="*",
        help="default: on a Mac all for Metal that are not large, else mobilenet_v3_small",
    )
    parser.add_argument("--only", help="run this step alone, such as operators")
    parser.add_argument("-o", "--output", type=Path, default=_ROOT / "build" / "mac-day")
    given = parser.parse_args()
    on_mac = platform.system() == "Darwin"
    models = given.models or (models_for_metal() if on_mac else ["mobilenet_v3_small"])
    output = empty(given.output)
    device = (
        "this Mac's GPU" if on_mac else "the double of Apple's classes: no GPU has run anything"
    )
    head = [
        f"Device: {device}",
        f"Machine: {platform.platform()}, {platform.processor() or platform.machine()}",
        "",
        "| step | outcome | time |",
        "|---|---|---|",
    ]
    print("\n".join(head), flush=True)
    with tempfile.TemporaryDirectory() as bundles:
        every = steps(models, Path(bundles), on_mac=on_mac)
        wanted = [step for step in every if given.only in (None, step.name)]
        if not wanted:
            parser.error(f"--only {given.only}: there are {', '.join(s.name for s in every)}")
        return 1 if run_all(wanted, output, head) else 0


if __name__ == "__main__":
    sys.exit(main())
