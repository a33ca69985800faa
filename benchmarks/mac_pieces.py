"""Products, convolutions and attention of growing sizes: our kernels, PyTorch's and mlx's.

    python -m benchmarks.mac_pieces

PyTorch runs on `mps`, where products and convolutions are MPSGraph's, and mlx where it is
installed; milliseconds are medians of rounds that each wait for the GPU once. On another system the
smallest sizes run on the double of Apple's classes, which times nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TESTS = Path(__file__).parents[1] / "tests"
_ON_MAC = sys.platform == "darwin"
_ROUNDS, _RUNS = 7, 10  # a round waits once for the GPU


@dataclass(frozen=True)
class Piece:
    """One operation, in float32.

    Attributes:
        kind: name in the table.
        operator: our operator.
        operands: operands for all contenders, by our operator's names.
        rest: further arguments of our operator.
        eager: torch's operator.
        gigaflops: number of operations, in billions.
    """

    kind: str
    operator: str
    operands: Mapping[str, torch.Tensor]
    rest: Mapping[str, Any]
    eager: Callable[..., torch.Tensor]
    gigaflops: float


def product(size: int) -> Piece:
    """Return a product of two square matrices."""
    given = {"self": torch.randn(size, size), "mat2": torch.randn(size, size)}
    rest = {"out": torch.empty(size, size)}
    return Piece("product", "mm_out", given, rest, torch.mm, 2 * size**3 / 1e9)


def convolution(channels: int, side: int) -> Piece:
    """Return a convolution with kernels of 3 x 3, as in a residual network."""
    given = {
        "input": torch.randn(1, channels, side, side),
        "weight": torch.randn(channels, channels, 3, 3),
    }
    rest = {
        "bias": None, "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "transposed": 0,
        "output_padding": [0, 0], "groups": 1,
    }  # fmt: skip
    eager = partial(torch.nn.functional.conv2d, padding=1)
    return Piece(
        "convolution", "convolution", given, rest, eager, 18 * (channels * side) ** 2 / 1e9
    )


def attention(places: int) -> Piece:
    """Return an attention with 8 heads of 64."""
    given = {name: torch.randn(1, 8, places, 64) for name in ("query", "key", "value")}
    rest = {"mask": None, "is_causal": 0, "scale": None}
    eager = torch.nn.functional.scaled_dot_product_attention
    return Piece("attention", "attention", given, rest, eager, 4 * 8 * 64 * places**2 / 1e9)


def pieces() -> tuple[Piece, ...]:
    """Return all pieces; without a Mac, where nothing is timed, the smallest of each kind."""
    if not _ON_MAC:
        return product(32), convolution(8, 8), attention(32)
    return (
        *map(product, (128, 256, 512, 1024, 2048, 4096)),
        *(convolution(c, s) for c, s in ((64, 14), (64, 56), (128, 56), (256, 56), (512, 56))),
        *map(attention, (64, 256, 1024, 4096)),
    )


def median_ms(run: Callable[[], object], wait: Callable[[], object]) -> float:
    """Return the median time of one run, after one run for warm-up."""
    run()
    wait()
    rounds = []
    for _ in range(_ROUNDS if _ON_MAC else 1):
        begun = time.perf_counter()
        for _ in range(_RUNS):
            run()
        wait()
        rounds.append((time.perf_counter() - begun) / _RUNS)
    return 1e3 * statistics.median(rounds)


def ours() -> list[float]:
    """Return the milliseconds of each piece with our kernels."""
    sys.path += [str(_TESTS / "cases"), str(_TESTS / "runtime/metal/double")]
    import shim_device

    if not _ON_MAC:
        from load_double import build_double, load_double

        double = load_double(build_double())
        shim_device.library = lambda _: double
    device = shim_device.Device(next(k for k in shim_device.KINDS if k.target == "metal"))
    mark = device.place(torch.zeros(1))
    found = []
    for piece in pieces():
        given = piece.operands | piece.rest
        placed = {n: device.place(v) if torch.is_tensor(v) else v for n, v in given.items()}
        run = partial(device.operate, piece.operator, placed)
        found.append(median_ms(run, partial(device.value, mark)))
    return found


def of_torch() -> list[float]:
    """Return the milliseconds of each piece on torch's device."""
    found = []
    for piece in pieces():
        run = partial(piece.eager, *(v.to("mps") for v in piece.operands.values()))
        found.append(median_ms(run, torch.mps.synchronize))
    return found


def of_mlx() -> list[float]:
    """Return each piece's milliseconds with mlx (ml-explore.github.io/mlx; channels last)."""
    import mlx.core as mx

    def run_of(piece: Piece) -> Callable[[], object]:
        given = [mx.array(value.numpy()) for value in piece.operands.values()]
        if piece.kind == "product":
            return lambda: mx.async_eval(given[0] @ given[1])
        if piece.kind == "attention":
            attend = mx.fast.scaled_dot_product_attention
            return lambda: mx.async_eval(attend(*given, scale=64**-0.5))
        image, weight = (value.transpose(0, 2, 3, 1) for value in given)
        mx.eval(image, weight)
        return lambda: mx.async_eval(mx.conv2d(image, weight, padding=1))

    return [median_ms(run_of(piece), mx.synchronize) for piece in pieces()]


def measured(which: str) -> list[float]:
    """Return milliseconds; all are NaN if the process fails, which prints the reason."""
    command = [sys.executable, "-m", "benchmarks.mac_pieces", "--only", which]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        print(f"{which}: failed with {done.returncode}", file=sys.stderr)
        return [math.nan] * len(pieces())
    return [float(each) for each in json.loads(done.stdout)]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    only = {"ours": ours, "torch": of_torch, "mlx": of_mlx}
    parser.add_argument("--only", choices=only, help="print these milliseconds as JSON")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(only[options.only]()))
        return
    columns = {"ours": measured("ours")}
    if torch.backends.mps.is_available():
        columns["torch"] = measured("torch")
    if importlib.util.find_spec("mlx"):
        columns["mlx"] = measured("mlx")
    print(f"| kind | GFLOP | {' | '.join(columns)} |\n|---|{'---:|' * (1 + len(columns))}")
    for piece, times in zip(pieces(), zip(*columns.values(), strict=True), strict=True):
        cells = " | ".join("-" if math.isnan(each) else f"{each:.3f}" for each in times)
        print(f"| {piece.kind} | {piece.gigaflops:.3f} | {cells} |")
    if not _ON_MAC:
        print("\nOn the double of Apple's classes: these times say nothing of a GPU.")


if __name__ == "__main__":
    main()
