"""How fast published artifacts run beside eager PyTorch, in turns.

    python benchmarks/latency.py resnet18 mobilenet_v3_small --threads 1 2
    python benchmarks/latency.py resnet18 --against onnxruntime      # pip install onnx onnxruntime

Every contender sits in a process of its own and runs when its turn comes, so that a drift of the
machine's speed meets all of them. What is said against eager is what a report says: with one thread
a comparison of processor time, with several of medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from menagerie.figures import count, milliseconds, speed
from menagerie.home import home
from menagerie.validation.turns import Partner, artifact, time_in_turns
from zoo.report.summary import Latencies
from zoo.store import open_store

if TYPE_CHECKING:
    from zoo.records import Measurement

_CONTENDER = Path(__file__).with_name("contender.py")


def compare(
    model: str, bundle: Path, others: list[str], threads: int, seconds: float
) -> dict[str, Measurement]:
    """The artifact's latency and those of the other contenders, by name."""
    program = next((bundle / "programs").iterdir()).name
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(artifact(bundle, program, 0, threads))]
        for kind in others:
            arguments = [str(_CONTENDER), kind, model, str(threads), str(bundle)]
            partner = Partner(kind, [sys.executable, "-W", "ignore", *arguments])
            stack.callback(partner.close)
            sides.append(partner)
        turns = [side.turn for side in sides]
        found = time_in_turns(turns, seconds=seconds, threads=threads, case=0)
    return dict(zip(["artifact", *others], found, strict=True))


def main() -> None:
    """Print a row a model and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=6.0, help="of a row")
    parser.add_argument("--against", nargs="*", default=[], choices=["onnxruntime"])
    parser.add_argument("--store", default=str(home() / "store"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            store = open_store(options.store)
            bundle = store.pull(store.find(model, "cpu"), Path(folder) / "bundle")
            for threads in options.threads:
                others = ["eager", *options.against]
                times = compare(model, bundle, others, threads, options.seconds)
                rows.append({"model": model, "threads": threads} | _plain(times))
                if not options.json:
                    print(f"{model}, {count(threads, 'thread')}: {_line(times)}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


def _line(times: dict[str, Measurement]) -> str:
    eager = times["eager"]
    told = [f"eager {milliseconds(eager.median_ms)}"]
    for name, found in times.items():
        if name != "eager":
            ratio = Latencies(name, found, eager, same_inputs=True).ratio
            told.append(f"{name} {milliseconds(found.median_ms)}, {speed(ratio)}")
    return "; ".join(told)


def _plain(times: dict[str, Measurement]) -> dict[str, object]:
    return {name: asdict(found) for name, found in times.items()}


if __name__ == "__main__":
    main()
