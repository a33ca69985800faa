"""What each precision of a model keeps and costs: bytes, time, memory and exactness beside float32.

    zoo convert resnet50 --precision float32 --precision int8-weight-only --random-weights 0
    python benchmarks/precisions.py resnet50 mobilenet_v2

All published precisions of a model are timed on its first golden input, in turns, a process each,
on one thread; the ratio is of processor times. Memory is the most that was resident in the program
`menagerie-run` while it opened the bundle and ran it, pages of the mapped weights and of libraries
included. The exactness is against eager PyTorch in float32, as the release's own proof found it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.figures import decibels, milliseconds, size
from menagerie.library import native_tool
from menagerie.paths import home
from menagerie.timing import artifact, time_in_turns
from zoo.errors import NotInStore
from zoo.manifest import load_manifest
from zoo.precision import Precision
from zoo.report.files import read_report
from zoo.store import open_store

if TYPE_CHECKING:
    from zoo.manifest import Manifest
    from zoo.store import Store


@dataclass(frozen=True)
class Row:
    """One release."""

    model: str
    precision: Precision
    weights_bytes: int
    of_bytes: float  # float32's weights
    processor_ms: float
    of_time: float  # float32's
    memory_bytes: int  # of a process without Python that opens and runs it
    of_memory: float  # float32's
    snr_db: float  # against eager in float32


def measure(model: str, manifest: Manifest, store: Store, seconds: float) -> list[Row]:
    """Return a row for each stored precision of an entry, float32 first.

    Raises:
        NotInStore: there is no release in float32.
    """
    names = {Precision.FLOAT32: model}
    names |= {p: f"{model}_{p.suffix}" for p in manifest.spec(model).variants()}
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        found: dict[Precision, Path] = {}
        for precision, name in names.items():
            with contextlib.suppress(NotInStore) if found else contextlib.nullcontext():
                found[precision] = store.pull(store.find(name, "cpu"), Path(scratch) / name)
        program = next(iter(sorted((found[Precision.FLOAT32] / "programs").iterdir()))).name
        sides = [stack.enter_context(artifact(folder, program, 0, 1)) for folder in found.values()]
        times = time_in_turns([s.turn for s in sides], seconds=seconds, threads=1, case=0)
        weights = [(folder / "weights.safetensors").stat().st_size for folder in found.values()]
        held = [_memory(folder, program) for folder in found.values()]
        exact = [_worst(folder) for folder in found.values()]
    busy = [each.processor_ms or each.minimum_ms for each in times]
    return [
        Row(model, p, kept, kept / weights[0], ms, ms / busy[0], most, most / held[0], snr)
        for p, kept, ms, most, snr in zip(found, weights, busy, held, exact, strict=True)
    ]


def _memory(bundle: Path, program: str) -> int:
    """Return the most bytes that `menagerie-run` had, on one thread."""
    options = ["--program", program, "--threads", "1", "--cases", "1", "--bench", "1"]
    command = [str(native_tool()), "--allow-unsigned", "--no-hashes", *options, str(bundle)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    *_, number, _ = done.stdout.splitlines()[-1].split()
    return round(float(number) * 1e6)


def _worst(bundle: Path) -> float:
    """Return the lowest signal-to-noise ratio of all outputs and cases, in dB."""
    validation = read_report(bundle).validation
    programs = validation.programs if validation else ()
    return min(p.snr_db for program in programs for p in program.parity)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a model (8)")
    parser.add_argument("--store", default=str(home() / "store"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--manifest", type=Path, help="a folder of entries; left out: ours")
    options = parser.parse_args()
    store, manifest = open_store(options.store), load_manifest(options.manifest)
    rows = [
        row for model in options.models for row in measure(model, manifest, store, options.seconds)
    ]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    share = "of float32's"
    print(
        f"| model | precision | weights | {share} | processor | {share} | memory | {share} | SNR |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        figures = [
            f"{size(row.weights_bytes)} | {row.of_bytes:.2f}",
            f"{milliseconds(row.processor_ms)} | {row.of_time:.2f}",
            f"{size(row.memory_bytes)} | {row.of_memory:.2f}",
            decibels(row.snr_db),
        ]
        print(f"| `{row.model}` | {row.precision} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
