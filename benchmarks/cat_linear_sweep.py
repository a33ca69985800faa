"""How much FuseCatLinear gains on the CPU target, over rows, widths, features and parts.

    python benchmarks/cat_linear_sweep.py --widths 64x2 16x3 --features 4 64 --rows 256 65536

Each pair of widths and features is lowered twice, with and without the rewrite (the gate is off),
with a dynamic number of rows, exactly as a model is. Both bundles are then run in turns in one
process without torch; the table shows the median of the ratios pair by pair, and what the model
of `transforms.passes.cat_linear_cost` makes of the shape.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Print a row a shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", nargs="+", default=["64x2", "16x3"], help="WIDTHxPARTS")
    parser.add_argument("--features", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--rows", type=int, nargs="+", default=[256, 4096, 65536])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--time", nargs=2, metavar="BUNDLE", help=argparse.SUPPRESS)
    choice = parser.parse_args()
    if choice.time:
        _time(choice.time, choice.rows, choice.threads, choice.rounds)
        return
    print(f"{'rows':>7} {'widths':>8} {'out':>5} {'ms':>9} {'measured':>9} {'expected':>9}  gate")
    for widths in choice.widths:
        for features in choice.features:
            _sweep(widths, features, choice)


def _sweep(widths: str, features: int, choice: argparse.Namespace) -> None:
    from transforms.passes.cat_linear_cost import Limits, Shape, denial, gain

    width, parts = map(int, widths.split("x"))
    with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        bundles = [str(b) for b in _lower(Path(folder), [width] * parts, features)]
        command = [sys.executable, __file__, "--time", *bundles, "--threads", str(choice.threads)]
        command += ["--rounds", str(choice.rounds), "--rows", *map(str, choice.rows)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
    for rows, before, measured in json.loads(answer.stdout):
        shape = Shape(rows, (width,) * parts, features, 4)
        verdict = "shut" if denial(shape, Limits()) else "open"
        print(
            f"{rows:7} {widths:>8} {features:5} {before:9.3f} {measured:9.2f} {gain(shape):9.2f}"
            f"  {verdict}",
            flush=True,
        )


def _time(bundles: list[str], rows: list[int], threads: int, rounds: int) -> None:
    """Alternate runs of two bundles; print [rows, milliseconds of the first, median ratio]."""
    import numpy as np

    sys.path.insert(0, str(_ROOT))
    from runtime.session import Session

    sessions = [Session(bundle, threads=threads) for bundle in bundles]
    table = []
    for count in rows:
        inputs = {
            spec.name: np.random.default_rng(0).standard_normal((count, spec.shape[1]), "float32")
            for spec in sessions[0].inputs
        }
        repeat = max(1, 20000 // count)

        def run(session: Session, feed: dict[str, Any] = inputs, repeat: int = repeat) -> float:
            started = time.perf_counter()
            for _ in range(repeat):
                session.run(feed)
            return (time.perf_counter() - started) * 1e3 / repeat

        for session in sessions:
            run(session)
        pairs = [(run(sessions[0]), run(sessions[1])) for _ in range(rounds)]
        before = statistics.median(p[0] for p in pairs)
        table.append((count, before, statistics.median(a / b for a, b in pairs)))
    print(json.dumps(table))


def _lower(folder: Path, widths: list[int], features: int) -> list[Path]:
    """Two bundles of the same linear: as it is, and parted."""
    import torch

    from transforms.passes.fuse_cat_linear import FuseCatLinear

    class Joined(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(sum(widths), features)

        def forward(self, *parts: torch.Tensor) -> torch.Tensor:
            return self.linear(torch.cat(parts, -1))

    inputs = tuple(torch.randn(64, width) for width in widths)
    rows = torch.export.Dim("rows", min=2, max=2**24)
    program = torch.export.export(
        Joined().eval(), inputs, dynamic_shapes=(tuple({0: rows} for _ in widths),), strict=False
    ).run_decompositions({})
    parted, _ = FuseCatLinear(gated=False)(program)
    return [
        _bundle(folder / name, p, inputs) for name, p in (("as is", program), ("parted", parted))
    ]


def _bundle(folder: Path, program: Any, inputs: tuple[Any, ...]) -> Path:
    from transforms.cpu_run import _write

    _write(folder, program, inputs)
    return folder


if __name__ == "__main__":
    sys.path.insert(0, str(_ROOT))
    main()
