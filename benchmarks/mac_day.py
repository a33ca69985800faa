"""The first day on a Mac: everything that is to be known there, into one folder to send back.

    make mac-day

On a Mac: the table of operators on the GPU, then the models converted, confirmed and timed. On
another system the same runs on the double of Apple's classes, which is what the report then says.
A step that fails is noted and the next one begins; the last line says how many did.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# All products by MPSGraph, those from 0.1, 1 and 10 GFLOP on, none: the fastest is to be shipped.
GRAPH_FROM = ("0", "0.1", "1", "10", "1e9")

_ROOT = Path(__file__).parents[1]
_DOUBLE = "tests/runtime/metal/double"
_REPORT = "report.md"


@dataclass(frozen=True)
class Step:
    """One command; its whole output becomes `<name>.txt`."""

    name: str
    command: tuple[str, ...]
    graph_from: str = ""  # GFLOP from which products are MPSGraph's; empty: as shipped


def steps(models: tuple[str, ...], folder: Path, *, on_mac: bool) -> tuple[Step, ...]:
    """What is to be run, in order."""
    python = sys.executable
    zoo, menagerie = (str(Path(python).with_name(name)) for name in ("zoo", "menagerie"))
    convert = (zoo, "convert", *models, "--target", "metal", "--random-weights", "0")
    if on_mac:
        tests = (python, "-m", "pytest", "-n0", "-q", "tests/cases", "tests/runtime/metal")
        return (
            Step("doctor", (zoo, "doctor")),
            Step("operators", tests),
            Step("convert", convert),
            *(Step(f"confirm-{m}", (zoo, "verify", m, "--target", "metal")) for m in models),
            *(
                Step(f"pull-{m}", (zoo, "pull", m, "--target", "metal", "-o", f"{folder}/{m}"))
                for m in models
            ),
            *(
                Step(
                    f"bench-{m}-graphs-from-{gigaflops}",
                    (menagerie, "bench", f"{folder}/{m}"),
                    gigaflops,
                )
                for m in models
                for gigaflops in GRAPH_FROM
            ),
            *(Step(f"report-{m}", (zoo, "report", m, "--target", "metal")) for m in models),
        )
    library = str(_ROOT / "build" / "double" / "libmenagerie_metal.so")
    return (
        Step("doctor", (zoo, "doctor")),
        Step("double", (python, f"{_DOUBLE}/load_double.py")),
        Step("operators", (python, f"{_DOUBLE}/run_cases.py", library)),
        Step("convert", convert),
        *(Step(f"confirm-{m}", (zoo, "verify", m, "--target", "metal")) for m in models),
        Step("counts", (python, "benchmarks/metal.py", *models)),
    )


def run(step: Step, folder: Path) -> str:
    """A line of the report."""
    begun = time.monotonic()
    told, code = _told(step)
    (folder / f"{step.name}.txt").write_text(f"$ {' '.join(step.command)}\n{told}")
    outcome = "passed" if code == 0 else f"FAILED with {code}"
    return f"| {step.name} | {outcome} | {time.monotonic() - begun:.0f} s |"


def _told(step: Step) -> tuple[str, int]:
    """What a command says, whatever bytes that is, and its exit code: the shell's if it is none."""
    given = {"MENAGERIE_METAL_GRAPH_FROM": step.graph_from} if step.graph_from else {}
    try:
        done = subprocess.run(
            step.command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", check=False, stdin=subprocess.DEVNULL, env=os.environ | given,
        )  # fmt: skip
    except OSError as error:
        return f"{error}\n", 127
    return done.stdout, done.returncode


def empty(folder: Path) -> Path:
    """The folder, absolute and empty: what an earlier day left in it is removed.

    Raises:
        SystemExit: it holds something else, which is not ours to remove.
    """
    folder = folder.absolute()
    if (folder / _REPORT).is_file():
        shutil.rmtree(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SystemExit(f"{folder}: holds no earlier day's report. Choose another with -o")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> int:
    """Write the folder; 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["mobilenet_v3_small"])
    parser.add_argument("-o", "--output", type=Path, default=_ROOT / "build" / "mac-day")
    given = parser.parse_args()
    on_mac = platform.system() == "Darwin"
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
    rows: list[str] = []
    (output / _REPORT).write_text("\n".join(head))
    for step in steps(tuple(given.models), output, on_mac=on_mac):
        rows.append(run(step, output))
        print(rows[-1], flush=True)
        (output / _REPORT).write_text("\n".join([*head, *rows, ""]))
    failed = sum("FAILED" in row for row in rows)
    print(f"\n{failed} of {len(rows)} steps failed. Send back the folder {output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
