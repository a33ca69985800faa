"""What each precision of a model keeps and costs: bytes, time, memory and exactness beside float32.

    zoo convert efficientnet_lite0 --precision float32 --precision int8 --target cpu --target metal
    python -m benchmarks.precisions efficientnet_lite0 resnet50

All published precisions of a model for the CPU are timed on its first golden input, in turns, a
process each, on one thread; the ratio is of processor times. Memory is the most that was resident
in the program `menagerie-run` while it opened the bundle and ran it, pages of the mapped weights
and of libraries included. What is emulated has neither. Exactness and accuracy are those that the
release's own proof found: against eager PyTorch in float32, and by the metric of the entry's gate.
Where that is top-1, *agreement* is the share of 200 crops of the gate's pictures that get the
class which float32 gives them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from menagerie.figures import decibels, milliseconds, percent, size
from menagerie.format.bundle_manifest import Role
from menagerie.format.folder import open_bundle
from menagerie.library import native_tool
from menagerie.numerics import Dtype
from menagerie.paths import home
from menagerie.session import Session
from menagerie.tensor_files import read_tensors, widen
from menagerie.timing import artifact, time_in_turns
from zoo.errors import NotInStore
from zoo.manifest import load_manifest
from zoo.precision import Precision
from zoo.report.files import read_report
from zoo.report.summary import summarise
from zoo.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from menagerie.tensor_files import Array
    from zoo.manifest import Manifest
    from zoo.store import Store

_CROPS = 200
_LEAST = 0.7  # of a picture's side


@dataclass(frozen=True)
class Row:
    """One release; None where it is emulated, or its entry has no gate of that kind."""

    model: str
    target: str
    precision: Precision
    weights_bytes: int
    of_bytes: float  # float32's weights
    processor_ms: float | None = None
    of_time: float | None = None  # float32's
    memory_bytes: int | None = None  # of a process without Python that opens and runs it
    of_memory: float | None = None  # float32's
    snr_db: float | None = None  # against eager in float32
    accuracy: float | None = None  # of the gate; of speech, one minus its rate of wrong words
    agreement: float | None = None  # with float32's, on crops


def measure(model: str, manifest: Manifest, store: Store, seconds: float) -> list[Row]:
    """Return a row for each stored precision of an entry, float32 for the CPU first.

    Raises:
        NotInStore: there is no release in float32 for the CPU.
    """
    names = {Precision.FLOAT32: model}
    names |= {p: f"{model}_{p.suffix}" for p in manifest.spec(model).variants()}
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:

        def pulled(target: str) -> dict[Precision, Path]:
            found: dict[Precision, Path] = {}
            for precision, name in names.items():
                absent = (NotInStore,) if found or target == "metal" else ()
                with contextlib.suppress(*absent):
                    folder = Path(scratch, target, name)
                    found[precision] = store.pull(store.find(name, target), folder)
            return found

        found = pulled("cpu")
        program = next(iter(sorted((found[Precision.FLOAT32] / "programs").iterdir()))).name
        sides = [stack.enter_context(artifact(folder, program, 0, 1)) for folder in found.values()]
        times = time_in_turns([s.turn for s in sides], seconds=seconds, threads=1, case=0)
        held = [_memory(folder, program) for folder in found.values()]
        busy = [each.processor_ms or each.minimum_ms for each in times]
        alike = _agreements(found)
        first = _row(model, "cpu", Precision.FLOAT32, found[Precision.FLOAT32], None)
        rows = [
            replace(
                _row(model, "cpu", precision, folder, first),
                processor_ms=ms,
                of_time=ms / busy[0],
                memory_bytes=most,
                of_memory=most / held[0],
                agreement=alike.get(precision),
            )
            for (precision, folder), ms, most in zip(found.items(), busy, held, strict=True)
        ]
        return rows + [_row(model, "metal", p, at, first) for p, at in pulled("metal").items()]


def _row(model: str, target: str, precision: Precision, bundle: Path, first: Row | None) -> Row:
    """Return what a bundle's files and its proof tell; `first` has float32's."""
    kept = (bundle / "weights.safetensors").stat().st_size
    figures = summarise(read_report(bundle))
    return Row(
        model=model,
        target=target,
        precision=precision,
        weights_bytes=kept,
        of_bytes=kept / first.weights_bytes if first else 1.0,
        snr_db=figures.worst_snr_db,
        accuracy=figures.accuracy,
    )


def _agreements(bundles: Mapping[Precision, Path]) -> dict[Precision, float]:
    """Return which share of crops gets float32's class; nothing where no gate has pictures."""
    manifest = open_bundle(bundles[Precision.FLOAT32]).manifest
    gate = manifest.accuracy
    if gate is None or gate.metric is not None:
        return {}
    tensors = read_tensors(bundles[Precision.FLOAT32] / manifest.files[Role.ACCURACY].path)
    [(name, pictures)] = ((n, t) for n, t in tensors.items() if n != "labels")
    crops = list(_crops(pictures))
    classes = {}
    for precision, folder in bundles.items():
        with Session(folder, gate.program, 1, allow_unsigned=True) as session:
            outputs = [session.run({name: crop}) for crop in crops]
        scores = [each[gate.output or next(iter(each))] for each in outputs]
        classes[precision] = np.array([np.argmax(widen(s, Dtype.FLOAT32)) for s in scores])
    right = classes[Precision.FLOAT32]
    return {precision: float(np.mean(found == right)) for precision, found in classes.items()}


def _crops(pictures: Array) -> Iterator[Array]:
    """Yield squares of pictures [count, height, width, 3], mirrored or not, at their whole size."""
    chosen = np.random.default_rng(0)
    _, height, width, _ = pictures.shape
    for number in range(_CROPS):
        share = chosen.uniform(_LEAST, 1)
        top, left = (chosen.uniform(0, 1 - share) for _ in range(2))
        rows = ((top + share * np.arange(height) / height) * height).astype(int)
        columns = ((left + share * np.arange(width) / width) * width).astype(int)
        crop = pictures[number % len(pictures)][rows][:, columns[:: chosen.choice([-1, 1])]]
        yield np.ascontiguousarray(crop[None])


def _memory(bundle: Path, program: str) -> int:
    """Return the most bytes that `menagerie-run` had, on one thread."""
    options = ["--program", program, "--threads", "1", "--cases", "1", "--bench", "1"]
    command = [str(native_tool()), "--allow-unsigned", "--no-hashes", *options, str(bundle)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    *_, number, _ = done.stdout.splitlines()[-1].split()
    return round(float(number) * 1e6)


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
    timed = f"processor | {share} | memory | {share}"
    print(
        f"| model | target | precision | weights | {share} | {timed} | SNR | accuracy | agreement |"
    )
    print("|---|---|---|" + "---:|" * 9)
    for row in rows:
        figures = [
            f"{size(row.weights_bytes)} | {row.of_bytes:.2f}",
            _shown(row.processor_ms, milliseconds),
            _shown(row.of_time, "{:.2f}".format),
            _shown(row.memory_bytes, size),
            _shown(row.of_memory, "{:.2f}".format),
            _shown(row.snr_db, decibels),
            _shown(row.accuracy, percent),
            _shown(row.agreement, percent),
        ]
        print(f"| `{row.model}` | {row.target} | {row.precision} | {' | '.join(figures)} |")


def _shown(value: Any, written: Callable[[Any], str]) -> str:
    return "" if value is None else written(value)


if __name__ == "__main__":
    main()
