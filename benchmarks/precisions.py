"""What each precision of a model keeps and costs: bytes, time, memory and exactness beside float32.

    zoo convert efficientnet_lite0 --precision float32 --precision int8 --target cpu --target metal
    python -m benchmarks.precisions efficientnet_lite0 resnet50
    python -m benchmarks.precisions efficientnet_lite0 --peers  # int8 of ONNX Runtime and OpenVINO

All published precisions of a model for the CPU are timed on its first golden input, in turns, a
process each, on one thread; the ratio is of processor times. Memory is the most that was resident
in the program `menagerie-run` while it opened the bundle and ran it, pages of the mapped weights
and of libraries included. What is emulated has neither. Exactness and accuracy are those that the
release's own proof found: against eager PyTorch in float32, and by the metric of the entry's gate.
Where that is top-1, *agreement* is the share of 200 crops of the gate's pictures that get the
class which float32 gives them. Peers in int8 have the same weights: ONNX Runtime's tool quantises
them by channel, and activations by ranges of other crops, or of the first golden input where no
gate has pictures; OpenVINO runs its file. Both are timed beside float32 on one of the pictures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers.comparison import command, convert
from benchmarks.peers.conversions import INT8
from benchmarks.peers.environments import IN_INT8, Contender
from benchmarks.peers.task import Task
from menagerie.errors import MenagerieError
from menagerie.figures import decibels, milliseconds, percent, size
from menagerie.format.bundle_manifest import Role
from menagerie.format.folder import open_bundle
from menagerie.library import native_tool
from menagerie.numerics import Dtype
from menagerie.paths import home
from menagerie.session import Session
from menagerie.tensor_files import read_tensors, widen
from menagerie.timing import Partner, artifact, time_in_turns
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
_LEAST = 0.7  # least share of a picture's side


@dataclass(frozen=True)
class Row:
    """One release; fields are None if it is emulated, or its entry has no such gate."""

    model: str
    target: str
    precision: Precision | Contender
    weights_bytes: int
    of_bytes: float  # float32's weights
    processor_ms: float | None = None
    of_time: float | None = None  # float32's
    memory_bytes: int | None = None  # peak of a process without Python that runs it
    of_memory: float | None = None  # float32's
    snr_db: float | None = None  # against eager in float32
    accuracy: float | None = None  # of the gate; for speech, one minus the word error rate
    agreement: float | None = None  # with float32, on crops


def measure(
    model: str, manifest: Manifest, store: Store, seconds: float, *, peers: bool = False
) -> list[Row]:
    """Return a row for each stored precision of an entry, float32 for the CPU first.

    Args:
        model: the entry's name.
        manifest: the entry's manifest.
        store: the store of the releases.
        seconds: duration of the measurement.
        peers: whether to add peers in int8.

    Raises:
        NotInStore: the store has no release in float32 for the CPU.
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
        pictures = _pictures(found[Precision.FLOAT32])
        task = Task(model, 1, Path(scratch, "peers"))
        others = _prepared(task, found[Precision.FLOAT32], pictures) if peers else []
        for kind in (Contender.ARTIFACT, *others) if others else ():
            sides.append(partner := Partner(kind, command(kind, task)))
            stack.callback(partner.close)
        times = time_in_turns([s.turn for s in sides], seconds=seconds, threads=1, case=0)
        held = [_memory(folder, program) for folder in found.values()]
        busy = [each.processor_ms or each.minimum_ms for each in times]
        alike = _agreements(found, pictures)
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
            for (precision, folder), ms, most in zip(
                found.items(), busy[: len(found)], held, strict=True
            )
        ]
        for kind, ms in zip(others, busy[len(found) + 1 :], strict=True):
            row = _peers_row(task, kind, first, pictures)
            rows.append(replace(row, processor_ms=ms, of_time=ms / busy[len(found)]))
        return rows + [_row(model, "metal", p, at, first) for p, at in pulled("metal").items()]


def _row(model: str, target: str, precision: Precision, bundle: Path, first: Row | None) -> Row:
    """Return the figures of a bundle's files and its proof; `first` is float32's row."""
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


@dataclass(frozen=True)
class Pictures:
    """A gate's pictures [count, height, width, 3], their labels, and the classifying program."""

    program: str
    input: str
    output: str | None
    all: Array
    labels: Array


def _pictures(bundle: Path) -> Pictures | None:
    manifest = open_bundle(bundle).manifest
    gate = manifest.accuracy
    if gate is None or gate.metric is not None:
        return None
    tensors = read_tensors(bundle / manifest.files[Role.ACCURACY].path)
    [(name, pictures)] = ((n, t) for n, t in tensors.items() if n != "labels")
    return Pictures(gate.program, name, gate.output, pictures, tensors["labels"])


def _agreements(
    bundles: Mapping[Precision, Path], pictures: Pictures | None
) -> dict[Precision, float]:
    """Return the share of crops that get float32's class; empty if no gate has pictures."""
    if pictures is None:
        return {}
    crops = list(_crops(pictures.all))
    classes = {}
    for precision, folder in bundles.items():
        with Session(folder, pictures.program, 1, allow_unsigned=True) as session:
            outputs = [session.run({pictures.input: crop}) for crop in crops]
        scores = [each[pictures.output or next(iter(each))] for each in outputs]
        classes[precision] = np.array([np.argmax(widen(s, Dtype.FLOAT32)) for s in scores])
    right = classes[Precision.FLOAT32]
    return {precision: float(np.mean(found == right)) for precision, found in classes.items()}


def _prepared(task: Task, bundle: Path, pictures: Pictures | None) -> list[Contender]:
    """Return the int8 peers whose files could be made, and report the others."""
    task.folder.mkdir()
    task.bundle.symlink_to(bundle)
    task.write(None if pictures is None else {pictures.input: pictures.all[:1]})
    given = {name: value[None] for name, value in task.inputs().items()}
    if pictures is not None:
        given = {pictures.input: np.stack([*_crops(pictures.all, seed=1)])}
        whole = [*_crops(pictures.all), *(each[None] for each in pictures.all)]
        np.savez(task.folder / "samples.npz", **{pictures.input: np.stack(whole)})
    np.savez(task.folder / "calibration.npz", **given)
    made = [convert(task, kind) for kind in IN_INT8]
    for each in made:
        if each.failure:
            print(f"{each.model}: {each.contender}: {each.failure}", file=sys.stderr)
    return [each.contender for each in made if not each.failure]


def _peers_row(task: Task, kind: Contender, first: Row, pictures: Pictures | None) -> Row:
    """Return a peer's figures except times; its agreement is with eager in float32."""
    kept = (task.folder / INT8).stat().st_size
    with (
        np.load(task.folder / "expected.npz") as wanted,
        np.load(task.folder / f"{kind}.npz") as made,
    ):
        noise = [(np.square(wanted[n]).sum(), np.square(made[n] - wanted[n]).sum()) for n in wanted]
    row = Row(
        model=first.model,
        target="cpu",
        precision=kind,
        weights_bytes=kept,
        of_bytes=kept / first.weights_bytes,
        snr_db=min(10 * float(np.log10(signal / error)) for signal, error in noise),
    )
    if pictures is None:
        return row
    classes = {k: _sampled(task, k) for k in (kind, Contender.EAGER)}
    alike = classes[kind][:_CROPS] == classes[Contender.EAGER][:_CROPS]
    right = classes[kind][_CROPS:] == pictures.labels.ravel()
    return replace(row, accuracy=float(right.mean()), agreement=float(alike.mean()))


def _sampled(task: Task, kind: Contender) -> Array:
    """Return the class of each of the task's samples, computed once."""
    file = task.folder / f"{kind}-samples.npy"
    if not file.exists():
        subprocess.run(command(kind, task, "--samples"), check=True, capture_output=True)
    scores = np.load(file)
    return np.asarray(scores.reshape(len(scores), -1).argmax(1))


def _crops(pictures: Array, seed: int = 0) -> Iterator[Array]:
    """Yield square crops of pictures [count, height, width, 3], mirrored or not, in full size."""
    chosen = np.random.default_rng(seed)
    _, height, width, _ = pictures.shape
    for number in range(_CROPS):
        share = chosen.uniform(_LEAST, 1)
        top, left = (chosen.uniform(0, 1 - share) for _ in range(2))
        rows = ((top + share * np.arange(height) / height) * height).astype(int)
        columns = ((left + share * np.arange(width) / width) * width).astype(int)
        crop = pictures[number % len(pictures)][rows][:, columns[:: chosen.choice([-1, 1])]]
        yield np.ascontiguousarray(crop[None])


def _memory(bundle: Path, program: str) -> int:
    """Return the peak memory of `menagerie-run` on one thread, in bytes."""
    options = ["--program", program, "--threads", "1", "--cases", "1", "--bench", "1"]
    command = [str(native_tool()), "--allow-unsigned", "--no-hashes", *options, str(bundle)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    *_, number, _ = done.stdout.splitlines()[-1].split()
    return round(float(number) * 1e6)


def main() -> None:
    """Print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a model (8)")
    parser.add_argument("--store", default=str(home() / "store"))
    parser.add_argument("--peers", action="store_true", help="add others' int8")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--manifest", type=Path, help="a folder of entries; left out: ours")
    options = parser.parse_args()
    store, manifest = open_store(options.store), load_manifest(options.manifest)
    rows: list[Row] = []
    for model in options.models:
        try:
            rows += measure(model, manifest, store, options.seconds, peers=options.peers)
        except MenagerieError as error:
            sys.exit(str(error))
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
