"""What a Metal artifact makes a GPU do, counted on the double, and how fast that could be at best.

    python benchmarks/metal.py mobilenet_v3_small parakeet_ctc_small
    python benchmarks/metal.py --all    # every model of the zoo for Metal that is not large

Models that the store lacks are converted first, with random weights. Counts are exact, and the same
on a Mac: those of one run of a program in its largest golden case, made by the Apple device itself
over doubles of Apple's classes. `breaks` are encoders that were begun. Megabytes are those of all
operands of all work, in buffers up to a quarter longer than their tensors, and once those of the
weights that the program has. `error` is the largest difference to eager's outputs in the golden
cases. The columns before it are the roofline: the longer of bytes over bandwidth and operations
over single-precision throughput. What a GPU's caches keep between two kernels counts as read from
memory, so that a run of small tensors can be faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.errors import MenagerieError
from menagerie.format.folder import open_bundle
from menagerie.tensor_files import read_tensors
from zoo.manifest import load_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np

_DOUBLE = Path(__file__).parents[1] / "tests" / "runtime" / "metal" / "double"


@dataclass(frozen=True)
class Chip:
    """A GPU's published figures: GB/s, and TFLOP/s in single precision."""

    name: str
    bandwidth: float
    throughput: float

    def milliseconds(self, size: float, operations: float) -> float:
        """Return the least time of a run with these bytes and operations."""
        return 1e3 * max(size / (self.bandwidth * 1e9), operations / (self.throughput * 1e12))


# M1: 2.6 TFLOP/s (Apple's press release of 10 November 2020); 68.25 GB/s, its LPDDR4X-4266 over 128
# bits. M2 Pro: 200 GB/s (press release of 17 January 2023), 2048 lanes at 1.398 GHz
# (hmc-tech.com/gpu). M4: 120 GB/s (press release of 7 May 2024), 1280 lanes at 1.47 GHz (the same).
# A lane does two operations per cycle.
CHIPS = (Chip("M1", 68.25, 2.6), Chip("M2 Pro", 200, 5.73), Chip("M4", 120, 3.76))


def counts(bundle: Path) -> Mapping[str, Mapping[str, float]]:
    """Return the device's work in one run of each program, and its largest `error`.

    Args:
        bundle: the bundle's folder.

    Raises:
        RuntimeError: the double ends with a fault, which becomes the message.
    """
    sys.path.append(str(_DOUBLE))
    from load_double import build_double

    done = subprocess.run(
        [sys.executable, str(_DOUBLE / "run_bundle.py"), str(build_double()), str(bundle)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    programs = {k.removesuffix("/counts"): v for k, v in found.items() if k.endswith("/counts")}
    for name, of in programs.items():
        errors = (v for k, v in found.items() if k.startswith(f"{name}/") and v is not of)
        of["error"] = max(errors)
    return programs


def bytes_of(names: Iterable[str], tensors: Mapping[str, np.ndarray]) -> int:
    """Return the bytes of the named tensors, each once, including scales of integer tensors."""
    suffixes = ("", ".scales", ".operand", ".shape")
    parts = {name + suffix for name in names for suffix in suffixes}
    return sum(tensors[part].nbytes for part in parts & tensors.keys())


def weights(bundle: Path) -> Mapping[str, int]:
    """Return the bytes of each program's weights; shared ones count for each program."""
    manifest = open_bundle(bundle, check_hashes=False).manifest
    tensors = read_tensors(bundle / manifest.weights.path)
    return {each.name: bytes_of(each.constants.values(), tensors) for each in manifest.programs}


def row(name: str, weight: int, of: Mapping[str, float]) -> tuple[str, ...]:
    """Return the table's row of a program with `weight` bytes of weights."""
    size = of["bytes"] + weight
    return (
        name,
        *(str(of[key]) for key in ("dispatches", "encoders", "commits")),
        f"{size / 1e6:.1f}",
        f"{of['operations'] / 1e9:.2f}",
        *(f"{chip.milliseconds(size, of['operations']):.2f}" for chip in CHIPS),
        f"{of['error']:.1e}",
    )


HEAD = (
    "program", "dispatches", "breaks", "commits", "MB", "GFLOP",
    *(f"{chip.name} ms" for chip in CHIPS), "error",
)  # fmt: skip


def _zoo(*words: object, shown: bool = True) -> bool:
    """Run a `zoo` command; return whether it succeeded. `shown`: print its output."""
    done = subprocess.run(
        [Path(sys.executable).with_name("zoo"), *map(str, words)],
        stdout=subprocess.DEVNULL, stderr=None if shown else subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.returncode == 0


def fetch(model: str, folder: Path) -> Path:
    """Return the model's bundle, converted if the store has none, or the folder `model`.

    Raises:
        RuntimeError: it could neither be pulled nor converted; the command has printed why.
    """
    if Path(model).is_dir():
        return Path(model)
    words = ("pull", model, "--target", "metal", "--platform", "metal-macos-arm64", "-o", folder)
    if not _zoo(*words, shown=False):
        _zoo("convert", model, "--target", "metal", "--random-weights", "0")
        if not _zoo(*words):
            raise RuntimeError("it was neither pulled nor converted")
    return folder


def models_for_metal() -> list[str]:
    """Return the zoo's float32 models for Metal, except those with the tag `large`."""
    manifest = load_manifest()
    specs = {name: manifest.spec(name) for name in manifest.select(["*"])}
    return [n for n, s in specs.items() if "metal" in s.targets and "large" not in s.tags]


def main() -> None:
    """Print a Markdown table row by row; return 1 if a model could not be counted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names, or folders of bundles")
    parser.add_argument("--all", action="store_true", help="all for Metal that are not large")
    options = parser.parse_args()
    models = models_for_metal() if options.all else options.models
    if not models:
        parser.error("name models, or say --all")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    failed = [model for model in models if not _counted(model)]
    sys.exit(1 if failed else 0)


def _counted(model: str) -> bool:
    """Print a model's rows, or the failure; return whether it succeeded."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            folder = fetch(model, Path(scratch) / "bundle")
            held = weights(folder)
            print(f"{model}: counting", file=sys.stderr, flush=True)
            for program, of in counts(folder).items():
                cells = row(f"{model}/{program}", held[program], of)
                print(f"| {' | '.join(cells)} |", flush=True)
        except (RuntimeError, MenagerieError) as error:
            print(f"{model}: {error}", file=sys.stderr)
            return False
    return True


if __name__ == "__main__":
    main()
