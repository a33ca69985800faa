"""Cycles that our Metal kernels issue, and the time that they would take in models on an M1.

    python -m benchmarks.metal_cycles                 # kernels, and the models that have a goal
    python -m benchmarks.metal_cycles vit_b_16        # kernels, and this model

Nothing runs on a GPU. Clang compiles each kernel to LLVM's code, with all calls inlined; one thread
of a threadgroup is followed through it with the sizes and strides of a launch (metal_lane.py), and
each instruction counts the cycles for which a SIMD group of an M1 issues it. Those figures are of
github.com/philipturner/metal-benchmarks: FADD, FMUL, FFMA and IADD32 1, IMUL32 2.3, IADD64 4,
IMUL64 13.4, and a product of 8 x 8 matrices 16, which are 16 multiply-adds a lane. Not published
and taken as 1, or as 2 where they are of 64 bits: bits, comparisons, selections, conversions, loads
and stores; as 20 and 80: a division by a variable; by a constant 4 and 8, of floats 6. Constant
memory is free. The M1 has 8 cores of 4 schedulers at 1.278 GHz (the same source).

Of a row of tiles the whole ones and the last one are followed, by a lane at their edge; where terms
are split, their sums count as written and read once.

The share of peak is that of matrices' cycles among all of a kernel's; the share of bandwidth is the
time that memory takes for operands and result, each moved once, over the longer of that and of
issue. A model's time is the sum over its products, convolutions and attentions, as eager PyTorch
calls them in the largest golden case; what else it computes is left out.
"""

from __future__ import annotations

import argparse
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.metal import CHIPS
from benchmarks.metal_lane import Cycles, follow, packed
from transforms.goldens.cases import make_inputs, model_dtype, planned_cases
from transforms.graph.callable import eager_of
from zoo.manifest import load_manifest
from zoo.sources import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CLOCK = 1.278e9
_SMALL, _LARGE = 32, 64  # sides of tiles
_ISSUED = 8 * 4 * _CLOCK  # cycles of SIMD groups per second
_ENOUGH, _BLOCK = 16, 512  # threadgroups, and terms of a block, as in metal/products.cpp
# In milliseconds, for models; the table below has the kernels' shares.
GOALS = {
    "mobilenet_v3_small": 0.35, "resnet50": 7.0, "parakeet_ctc_small": 6.0,
    "whisper_tiny_encoder": 24.0,
}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """Sizes [m, k] x [k, n] of a product, a convolution as a product, or queries x keys x width.

    Attributes:
        other: whether an operand of the result's size is added to it.
        turned: whether the second operand is in columns, like a linear layer's weight.
        window: the width of a convolution's kernel.
        line: whether images and kernel have one row.
    """

    kind: str  # product, convolution, depthwise, attention
    m: int
    n: int
    k: int
    batch: int = 1
    other: bool = False
    turned: bool = False
    window: int = 1
    type: str = "float"
    line: bool = False

    @property
    def taps(self) -> int:
        """The number of taps of a channel."""
        return self.window if self.line else self.window**2

    @property
    def bytes(self) -> int:
        """Bytes of operands and result, each moved once."""
        out, left, right = self.m * self.n, self.m * self.k, self.k * self.n // self.taps
        if self.kind == "attention":
            out, left, right = self.m * self.k, self.m * self.k, 2 * self.n * self.k
        if self.kind == "depthwise":
            right = out
        return (
            (4 if self.type == "float" else 2)
            * self.batch
            * (out * (1 + self.other) + left + right)
        )


def _quotient(a: int, b: int) -> int:
    return -(-a // b)


def cut_of(work: Work) -> tuple[int, int]:
    """Return the side of a product's tiles and the parts of its terms, as in metal/products.cpp."""
    costs: list[tuple[int, tuple[int, int]]] = []
    for tile in (_SMALL, _LARGE):
        groups = _quotient(work.m, tile) * _quotient(work.n, tile) * work.batch
        if tile == _LARGE and min(work.m, work.n) <= _SMALL:
            continue
        blocks = _quotient(work.k, _BLOCK)
        length = _quotient(blocks, min(_quotient(_ENOUGH, groups), blocks)) * _BLOCK
        for terms in (work.k, min(length, work.k)):
            parts = _quotient(work.k, terms)
            cost = max(groups * parts, _ENOUGH) * tile**2 * (4 if tile == _LARGE else 5) * terms
            sums = work.batch * work.m * work.n * parts * 512 + 2**23
            costs.append((cost + (sums if parts > 1 else 0), (tile, parts)))
    return min(costs)[1]


@functools.cache
def issued(work: Work, tile: int, parts: int = 1) -> Cycles:
    """Count the cycles of one SIMD group; extrapolate beyond 1,024 terms or 64 keys."""
    keys = work.kind == "attention"
    value, most = (work.n, 64) if keys else (work.k, 1024)
    if value > most and work.kind != "depthwise":
        half, whole = (
            issued(replace(work, n=s) if keys else replace(work, k=s), tile, parts)
            for s in (most // 2, most)
        )
        return half + (whole - half) * (value / (most // 2) - 1)
    if keys or not tile:
        return follow(*_launch(work, tile))
    # The last tile of a row is checked if it is not whole. The first SIMD group computes the taps
    # of a convolution; for the others, the lane with the last column is followed.
    across, rest = _quotient(work.n, tile), work.n % tile
    every = Cycles()
    for group, count in ((0, across - bool(rest)), (across - 1, bool(rest))):
        last = ((rest if group else 0) or tile) - 1
        edge = last // (tile // 2) * 32 + last % (tile // 2) // 4
        for lane, share_of in ((0, 0.25), (edge, 0.75)):
            if count:
                position = [(group, 0, 0), lane]
                cycles = follow(*_launch(work, tile, position, parts))
                every += cycles * (share_of * count / across)
    return every


def _launch(
    work: Work, tile: int, place: Sequence[Any] = ((0, 0, 0), 32), parts: int = 1
) -> tuple[str, str, list[Any]]:
    """Return a kernel's file, the prefix of its mangled name, and its arguments."""
    mangled = {"float": "f", "half": "DF16_"}[work.type]
    finish = packed("i4i4f4f", int(work.other), 11, *(0,) * 3, 1.0, *(0,) * 7)  # 11: kAdd
    last: list[Any] = [None, finish, packed("5I", 0, work.n, 1, 0, 1)]
    terms = [None, packed("2I", parts, work.k)]
    extents = packed("3I2f", work.m, work.n, work.k * parts, 1.0, 1.0)
    rows, bias, down = (packed("3I", 0, *each) for each in ((work.k, 1), (0, 1), (1, 0)))
    columns = packed("3I", 0, 1, work.k) if work.turned else packed("3I", 0, work.n, 1)
    side = round(work.n**0.5) or 1
    high, wide = (1, work.n) if work.line else (side, side)
    image = packed("3i", work.k // work.taps, high, wide)
    tall = 1 if work.line else work.window
    window = packed("8i", tall, work.window, 1, 1, tall // 2, work.window // 2, 1, 1)
    strides = packed("4i", 0, high * wide, wide, 1)
    if work.kind == "attention":
        shape = packed("6If2ifI", 1, 1, work.m, work.n, work.k, work.k, 1.0, 0, 0, 0.0, 0)
        along = packed("4I", 0, 0, work.k, 1)
        wide = _LARGE if work.k <= _LARGE else 128
        positions = [*place, 1, 0]
        return (
            "attention",
            f"_Z6attendIfLi{wide}ELb0E",
            [*(None,) * 5, shape, *(along,) * 5, *(None,) * 3, along, *positions],
        )
    if work.kind == "depthwise":
        image = packed("3i", work.m, high, wide)
        known = (tall, work.window) in ((1, 9), (3, 3), (5, 5), (7, 7))
        fours = _quotient(wide, 4) if known else wide
        inner = (work.m // 2 * high + high // 2) * fours + fours // 2
        grouping = packed("3i", work.m, 0, 1)
        arguments = [*(None,) * 4, image, image, window, grouping, strides, *last, inner]
        name = f"_Z17convolve_channelsI{mangled}Li{tall}ELi{work.window}ELi1ELb0EE"
        if not known:
            name = f"_Z17convolve_elementsI{mangled}E"
        return "convolution", name, arguments
    if work.kind == "convolution":
        to = packed("3i", work.m, high, wide)
        of = [image, to, window, strides, packed("I", 1)]  # one group
        arguments = [*(None,) * 4, extents, *of, down, *last, *terms, *place]
        return "matrix_product", f"_Z8convolveI{mangled}Li{tile}E", arguments
    if min(work.m, work.n) == 1:
        width = max(work.m, work.n)
        steps = packed("7I", 1, 0, *((1, work.k) if work.turned else (width, 1)), 0, 1, 0)
        arguments = [
            *(None,) * 4,
            packed("2I2f", width, work.k, 1.0, 1.0),
            steps,
            *last,
            (0, 0, 0),
            0,
        ]
        name = "8dot_rows" if work.turned else "11sum_columns"
        return "vector_product", f"_Z{name}I{mangled}E", arguments + ([] if work.turned else [0])
    factors = [None, packed("3I", 0, 0, 0)]
    arguments = [*(None,) * 4, extents, rows, columns, *factors, bias, *last, *terms, *place]
    return "matrix_product", f"_Z8multiplyI{mangled}Li{tile}E", arguments


def seconds(work: Work) -> float:
    """Return an M1's time: issue by all schedulers, at least one SIMD group's, or memory's."""
    tile, count, moved = 0, 0, work.bytes
    parts = 1
    cut = replace(work, batch=1)
    if work.kind == "attention":
        count = 4 * _quotient(work.m, 32) * _quotient(work.k, 128) * work.batch
    elif work.kind == "depthwise":
        each = 4 if work.window in (3, 5, 7, 9) else 1  # of a row, per thread
        wide = work.n if work.line else round(work.n**0.5)
        count = _quotient(work.m * (work.n // wide) * _quotient(wide, each) * work.batch, 32)
    elif min(work.m, work.n) == 1:
        width = max(work.m, work.n)
        count = work.batch * (width if work.turned else 8 * _quotient(width, 32))
    else:
        tile, parts = cut_of(work)
        cut = replace(cut, k=_quotient(_quotient(work.k, parts), _BLOCK) * _BLOCK)
        cut = replace(cut, k=min(cut.k, work.k))
        count = 4 * _quotient(work.m, tile) * _quotient(work.n, tile) * work.batch * parts
        # Partial sums are written, and read by another kernel.
        moved += (parts > 1) * 2 * 4 * work.batch * work.m * work.n * parts
    cycles = issued(cut, tile, parts).all
    return max(cycles * count / _ISSUED, cycles / _CLOCK, moved / (CHIPS[0].bandwidth * 1e9))


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that collects the works that PyTorch calls, with additions to their results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.works: list[Work] = []
        self._of: dict[int, tuple[int, torch.Tensor]] = {}  # results, kept alive

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run and record the operator."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = [a for a in args if isinstance(a, torch.Tensor)]
        result = out[0] if isinstance(out, tuple) else out
        if (work := _work(name, args, result)) is not None:
            self._of[id(result)] = (len(self.works), result)
            self.works.append(work)
        elif isinstance(result, torch.Tensor) and given:
            known = [self._of[id(a)][0] for a in given if id(a) in self._of]
            shapes = [a.shape for a in given]
            if known and name in ("add", "add_") and shapes == [result.shape] * 2:
                self.works[known[-1]] = replace(self.works[known[-1]], other=True)
            elif len(known) == 1 and result.numel() == given[0].numel():
                self._of[id(result)] = (known[0], result)
        return out


def _work(name: str, args: Sequence[Any], result: torch.Tensor) -> Work | None:
    if name == "convolution":
        x, weight, groups = args[0], args[1], args[8]
        n, k = result[0, 0].numel(), weight[0].numel()
        line = result[0, 0].numel() == result.shape[-1]
        if groups > 1:
            window = weight.shape[-1]
            return Work("depthwise", weight.shape[0], n, k, x.shape[0], window=window, line=line)
        kind = "product" if k == weight.shape[1] and n == x[0, 0].numel() else "convolution"
        window = 1 if kind == "product" else weight.shape[-1]
        line &= window > 1
        return Work(kind, weight.shape[0], n, k, x.shape[0], window=window, line=line)
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        a, b = args[-2:] if name in ("mm", "bmm") else args[1:3]
        batch = a.shape[0] if a.dim() == 3 else 1  # noqa: PLR2004
        turned = b.stride(-1) != 1
        return Work("product", a.shape[-2], b.shape[-1], a.shape[-1], batch, turned=turned)
    if name.startswith("_scaled_dot_product"):
        query, key = args[:2]
        return Work(
            "attention", query.shape[-2], key.shape[-2], query.shape[-1], query[..., 0, 0].numel()
        )
    return None


def works(model: str) -> list[Work]:
    """Return the kernel launches of a zoo model with random weights."""
    manifest = load_manifest()
    spec = manifest.spec(model)
    origin = manifest.origins[model].file
    module = load(model, spec, origin=origin, random_weights=0, allow_factories=True).module
    found: list[Work] = []
    for program in spec.programs:
        planned = max(planned_cases(program), key=lambda case: sum(case.dimensions.values()))
        inputs = make_inputs(program, planned, seed=0, dtype=model_dtype(module))
        run = eager_of(module, program).from_first_state()
        with torch.no_grad(), Calls() as calls:
            run(inputs)
        found += calls.works
    return found


# Kernels: their work, and the goal for their share of peak or bandwidth.
KERNELS: Sequence[tuple[str, Work, int, float]] = (
    ("product, tiles of 64", Work("product", 1024, 1024, 512, turned=True), 64, 0.75),
    ("product, tiles of 32", Work("product", 188, 256, 512, turned=True), 32, 0.75),
    ("product in half, tiles of 64", Work("product", 1024, 1024, 512, type="half"), 64, 0.75),
    ("convolution 3 x 3, tiles of 64", Work("convolution", 128, 3136, 576, window=3), 64, 0.60),
    ("convolution 3 x 3, tiles of 32", Work("convolution", 256, 196, 576, window=3), 32, 0.60),
    ("attention of width 64", Work("attention", 1500, 64, 64), 64, 0.55),
    ("depthwise 3 x 3", Work("depthwise", 128, 784, 9, window=3), 0, 0.80),
    ("depthwise 5 x 5", Work("depthwise", 128, 784, 25, window=5), 0, 0.80),
    ("matrix x vector", Work("product", 1, 1024, 1024, turned=True), 0, 0.80),
    ("matrix x vector in half", Work("product", 1, 1024, 1024, turned=True, type="half"), 0, 0.80),
)


def epilogue(*, other: bool) -> float:
    """Return the cycles per element of a tile of 64 for the epilogue: bias, and an operand."""
    one, two = (issued(Work("product", 1024, 1024, k, other=other), 64).all for k in (16, 32))
    return (one - (two - one)) / 32


def share(work: Work, tile: int) -> float:
    """Return the share of peak, or of bandwidth if a kernel multiplies no matrices."""
    cycles = issued(work, tile)
    if cycles.matrices:
        return cycles.matrices / cycles.all
    return work.bytes / (CHIPS[0].bandwidth * 1e9) / seconds(work)


def main() -> None:
    """Print two Markdown tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(GOALS), help="names of the zoo")
    models = parser.parse_args().models
    print("| kernel | ours | goal |\n|---|---:|---:|")
    for name, work, tile, goal in KERNELS:
        of = "peak" if issued(work, tile).matrices else "bandwidth"
        print(f"| {name}, of {of} | {share(work, tile):.0%} | {goal:.0%} |", flush=True)
    for name, other in (("bias", False), ("bias and an operand added", True)):
        print(f"| {name}: cycles an element | {epilogue(other=other):.0f} | 12 |")
    print("\n| model | ms | goal | where |\n|---|---:|---:|---|")
    for model in models:
        times: dict[str, float] = {}
        for work in works(model):
            side = f" {cut_of(work)[0]}" if work.kind in ("product", "convolution") else ""
            kind = "vector" if min(work.m, work.n) == 1 else work.kind + side
            times[kind] = times.get(kind, 0) + 1e3 * seconds(work)
        total = sum(times.values())
        where = ", ".join(
            f"{kind} {t / total:.0%}"
            for kind, t in sorted(times.items(), key=lambda item: -item[1])
        )
        print(f"| {model} | {total:.2f} | {GOALS.get(model, '')} | {where} |", flush=True)


if __name__ == "__main__":
    main()
