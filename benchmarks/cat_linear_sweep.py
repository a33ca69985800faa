"""How much FuseCatLinear gains on the CPU target, over rows, widths, features and parts.

    python benchmarks/cat_linear_sweep.py --widths 64x2 16x3 --features 4 64 --rows 256 65536

Each pair of widths and features is lowered twice, with and without the rewrite (the gate is open),
with a dynamic number of rows, exactly as a model is. Both bundles are then run in turns in one
process without torch (`alternating.py`); the table shows the median of the ratios pair by pair, and
what the model of `cat_linear_cost.py` and the gate make of the shape.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from alternating import alternate


def main() -> None:
    """Print a row a shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--widths", nargs="+", default=["64x2", "16x3"], help="WIDTHxPARTS")
    parser.add_argument("--features", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--rows", type=int, nargs="+", default=[256, 4096, 65536])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    choice = parser.parse_args()
    print(f"{'rows':>7} {'widths':>8} {'out':>5} {'ms':>9} {'measured':>9} {'expected':>9}  gate")
    for widths in choice.widths:
        for features in choice.features:
            _sweep(widths, features, choice)


def _sweep(widths: str, features: int, choice: argparse.Namespace) -> None:
    from cat_linear_cost import gain

    from transforms.passes.fuse_cat_linear import Shape, denial

    width, parts = map(int, widths.split("x"))
    with tempfile.TemporaryDirectory(prefix="menagerie-") as folder:
        timings = alternate(
            *_lower(Path(folder), [width] * parts, features),
            threads=choice.threads,
            rounds=choice.rounds,
            rows=choice.rows,
        )
    for rows, timing in zip(choice.rows, timings, strict=True):
        shape = Shape(rows, (width,) * parts, features, 4)
        verdict = "shut" if denial(shape) else "open"
        print(
            f"{rows:7} {widths:>8} {features:5} {timing.before_ms:9.3f} {timing.speedup:9.2f}"
            f" {gain(shape):9.2f}  {verdict}",
            flush=True,
        )


def _lower(folder: Path, widths: list[int], features: int) -> tuple[Path, Path]:
    """Two bundles of the same linear: as it is, and parted."""
    import torch

    from transforms.bisect.piece import lower_piece
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
    parted, _ = FuseCatLinear(gate="open")(program)
    lower_piece(folder / "as is", program, inputs)
    lower_piece(folder / "parted", parted, inputs)
    return folder / "as is", folder / "parted"


if __name__ == "__main__":
    main()
