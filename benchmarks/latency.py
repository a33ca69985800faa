"""How fast published artifacts run, as ratios to eager PyTorch in alternating runs.

    python benchmarks/latency.py resnet18 mobilenet_v3_small --threads 1 2
    python benchmarks/latency.py resnet18 --against onnxruntime      # pip install onnx onnxruntime

Every contender sits in a process of its own and runs when its turn comes, so that a drift of the
machine's speed meets all of them; the table shows the median of the ratios pair by pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from menagerie.home import home
from zoo.store import open_store

_CONTENDER = Path(__file__).with_name("contender.py")


class Contender:
    """A process that runs a model whenever it is asked to."""

    def __init__(self, kind: str, model: str, threads: int, bundle: Path) -> None:
        self.kind = kind
        arguments = [kind, model, str(threads), str(bundle)]
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(_CONTENDER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self) -> float:
        """Milliseconds of one run."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{self.kind} died; is it installed?")
        return float(answer)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def compare(
    model: str, bundle: Path, kinds: list[str], threads: int, rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of every contender over `rounds` alternating runs."""
    contenders = [Contender(kind, model, threads, bundle) for kind in kinds]
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    try:
        for contender in contenders:
            contender.run()
        for _ in range(rounds):
            for contender in contenders:
                times[contender.kind].append(contender.run())
    finally:
        for contender in contenders:
            contender.close()
    return times


def main() -> None:
    """Print a row a model and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--against", nargs="*", default=[], choices=["onnxruntime"])
    parser.add_argument("--store", default=str(home() / "store"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    kinds = ["eager", "menagerie", *options.against]
    rows = []
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            store = open_store(options.store)
            bundle = store.pull(store.find(model, "cpu"), Path(folder) / "bundle")
            for threads in options.threads:
                times = compare(model, bundle, kinds, threads, options.rounds)
                rows.append(_row(model, threads, times))
                if not options.json:
                    print("  ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


def _row(model: str, threads: int, times: dict[str, list[float]]) -> dict[str, object]:
    row: dict[str, object] = {
        "model": model,
        "threads": threads,
        "eager_ms": round(statistics.median(times["eager"]), 2),
    }
    for kind, measured in times.items():
        if kind != "eager":
            ratios = [a / b for a, b in zip(measured, times["eager"], strict=True)]
            row[f"{kind}/eager"] = round(statistics.median(ratios), 2)
    return row


if __name__ == "__main__":
    main()
