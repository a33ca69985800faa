"""Published artifacts beside eager PyTorch and other ways to run a model on a CPU, in one run.

    zoo convert resnet18 vit_b_16 --target cpu --random-weights 0
    python -m benchmarks.peers resnet18 vit_b_16
    python -m benchmarks.peers resnet18 --against onnxruntime openvino mnn --threads 1
    python -m benchmarks.peers resnet18 --start          # fresh processes, too
    python -m benchmarks.peers resnet18 --convert        # and how long each conversion takes

All have the same seeded weights and inputs, float32, and one process each; they run in turns, so
that a drift of the machine's speed meets all. With one thread processor time is counted, with
several the wall's. Peers are installed into `build/peers` when they are first wanted (torch and
all else stays shared). Tables are Markdown on standard output; `--json` keeps the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.comparison import Conversion, convert, latencies, start, start_command
from benchmarks.peers.environments import IN_INT8, OWN, Contender
from benchmarks.peers.figures import conversions_table, latency_table, start_table
from benchmarks.peers.task import Task
from menagerie.errors import MenagerieError
from menagerie.paths import home
from zoo.store import open_store

if TYPE_CHECKING:
    from benchmarks.peers.comparison import Latency, Start

_MOST_ERROR = 0.01  # relative to the largest value; above it, the models differ
_PEERS = [contender for contender in Contender if contender not in (*OWN, *IN_INT8)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", help="that are published for the CPU")
    parser.add_argument("--against", nargs="*", type=Contender, choices=_PEERS,
                        default=[Contender.ONNXRUNTIME, Contender.OPENVINO])  # fmt: skip
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10.0, help="of a row (10)")
    parser.add_argument("--start", action="store_true", help="also time fresh processes")
    parser.add_argument("--convert", action="store_true", help="also print conversion times")
    parser.add_argument("--store", default=str(home() / "store"))
    parser.add_argument("--json", type=Path, help="keep all figures in this file")
    return parser.parse_args()


def main() -> None:
    """Measure, then print the tables."""
    options = _arguments()
    times: list[Latency] = []
    starts: list[Start] = []
    made: list[Conversion] = []
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            first = Task(model, options.threads[0], Path(folder))
            store = open_store(options.store)
            store.pull(store.find(model, "cpu"), first.bundle)
            first.write()
            found = [convert(first, peer) for peer in options.against]
            made += found
            able = [*OWN, *(each.contender for each in found if not each.failure)]
            for threads in options.threads:
                times += _timed(Task(model, threads, first.folder), able, options.seconds)
            _check([each for each in times if each.model == model])
            if options.start:
                kinds = [kind for kind in able if kind is not Contender.EAGER]
                starts += [start(first, *start_command(first, kind)) for kind in [None, *kinds]]
        print(f"{model}: done", file=sys.stderr, flush=True)
    print(latency_table(times))
    if starts:
        print("\n" + start_table(starts))
    if options.convert or any(each.failure for each in made):
        print("\n" + conversions_table(made))
    if options.json is not None:
        kept = {"latency": times, "start": starts, "conversion": made}
        plain = {name: [asdict(row) for row in rows] for name, rows in kept.items()}
        options.json.write_text(json.dumps(plain, indent=1) + "\n")


def _check(times: list[Latency]) -> None:
    """Raise an error if contenders do not compute the same values."""
    for each in times:
        if each.error > _MOST_ERROR:
            fact = f"{each.contender} is {each.error:.2g} of the largest value away from eager"
            sys.exit(f"{each.model}: {fact}: it was given another model, or computes wrongly")


def _timed(task: Task, contenders: list[Contender], seconds: float) -> list[Latency]:
    """Time the contenders; report and skip those that cannot be loaded."""
    able = list(contenders)
    while True:
        try:
            return latencies(task, able, seconds)
        except MenagerieError as error:
            lost = next((kind for kind in able if kind not in OWN and kind in str(error)), None)
            if lost is None:
                raise
            print(f"{task.model}: {lost} does not run: {error}", file=sys.stderr, flush=True)
            able.remove(lost)


if __name__ == "__main__":
    main()
