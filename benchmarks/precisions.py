"""What each precision of a model keeps and costs: bytes, time and exactness beside float32's.

    zoo convert resnet50 --precision float32 --precision int8-weight-only --random-weights 0
    python benchmarks/precisions.py resnet50 mobilenet_v2

All published precisions of a model are timed on its first golden input, in turns, a process each,
on one thread; the ratio is of processor times. The exactness is against eager PyTorch in float32,
as the release's own proof found it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.figures import decibels, milliseconds, size
from menagerie.home import home
from menagerie.validation.turns import artifact, time_in_turns
from zoo.errors import NotInStore
from zoo.manifest import load_manifest
from zoo.precision import Precision
from zoo.report import read_report
from zoo.store import open_store

if TYPE_CHECKING:
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
    snr_db: float  # against eager in float32


def measure(model: str, store: Store, seconds: float) -> list[Row]:
    """A row for each precision that the store has, float32 first.

    Raises:
        NotInStore: there is no release in float32.
    """
    names = {Precision.FLOAT32: model}
    names |= {p: f"{model}_{p.suffix}" for p in load_manifest().spec(model).variants()}
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        found: dict[Precision, Path] = {}
        for precision, name in names.items():
            with contextlib.suppress(NotInStore) if found else contextlib.nullcontext():
                found[precision] = store.pull(store.find(name, "cpu"), Path(scratch) / name)
        program = next(iter(sorted((found[Precision.FLOAT32] / "programs").iterdir()))).name
        sides = [stack.enter_context(artifact(folder, program, 0, 1)) for folder in found.values()]
        times = time_in_turns([s.turn for s in sides], seconds=seconds, threads=1, case=0)
        weights = [(folder / "weights.safetensors").stat().st_size for folder in found.values()]
        exact = [_worst(folder) for folder in found.values()]
    busy = [each.processor_ms or each.minimum_ms for each in times]
    return [
        Row(model, p, held, held / weights[0], ms, ms / busy[0], snr)
        for p, held, ms, snr in zip(found, weights, busy, exact, strict=True)
    ]


def _worst(bundle: Path) -> float:
    """The lowest signal-to-noise ratio of all outputs and cases, in dB; infinite where equal."""
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
    options = parser.parse_args()
    store = open_store(options.store)
    rows = [row for model in options.models for row in measure(model, store, options.seconds)]
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    print("| model | precision | weights | of float32's | processor | of float32's | SNR |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for row in rows:
        held, took = size(row.weights_bytes), milliseconds(row.processor_ms)
        shares = f"{row.of_bytes:.2f} | {took} | {row.of_time:.2f}"
        print(f"| `{row.model}` | {row.precision} | {held} | {shares} | {decibels(row.snr_db)} |")


if __name__ == "__main__":
    main()
