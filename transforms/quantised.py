"""Weights as integers of eight or four bits, with a scale for each group of a row's numbers.

Symmetric: q = clamp(round(w / s), -m, m) with m = 127 or 7, and w' = q s; some of a group are
rounded the other way, so that its sum stays. A
scale is the group's largest magnitude over m, cut to bfloat16. So q s is exact in float32 (16 bits
of 24), the largest magnitude is m s, and quantising w' once more gives q and s again: who writes a
bundle need not be told which weights were rounded. Where a scale is a whole row's, products of
the row and another operand can be summed up in integers: precisions `int8` and `int8-static`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from zoo.precision import Precision, WeightPrecision

_UPPER_HALF = -(1 << 16)  # of a float32's bits: what bfloat16 keeps of them


@dataclass(frozen=True)
class Scheme:
    """How many bits a number takes, and how many of a row share a scale."""

    bits: int  # 8 or 4
    group: int | None  # a row that is no multiple of it has one scale; None: every row

    @property
    def most(self) -> int:
        """The largest integer; the smallest is its negative."""
        return (1 << (self.bits - 1)) - 1


INTEGERS = {
    Precision.INT8: Scheme(bits=8, group=None),
    Precision.INT8_STATIC: Scheme(bits=8, group=None),
    Precision.INT8_WEIGHT_ONLY: Scheme(bits=8, group=128),
    Precision.INT4_WEIGHT_ONLY: Scheme(bits=4, group=32),
}


def scheme_of(kept: WeightPrecision) -> Scheme | None:
    """How weights that are kept so are rounded; None where they are no integers."""
    scheme = INTEGERS.get(kept.precision)
    if scheme is None or kept.group is None:
        return scheme
    return replace(scheme, group=kept.group)


@dataclass(frozen=True)
class Quantised:
    """A weight of `shape`; its rows are along its first axis, all else is one row."""

    shape: tuple[int, ...]
    values: torch.Tensor  # int8 (rows, columns)
    scales: torch.Tensor  # bfloat16 (rows, groups); (rows,) where the scheme has no groups

    def wide(self) -> torch.Tensor:
        """The float32 tensor that this stands for."""
        values = self.values.reshape(*self.scales.shape, -1).float()
        return (values * self.scales.float()[..., None]).reshape(self.shape)

    def packed(self) -> torch.Tensor:
        """Two values a byte, each plus 8, the first in the lower half: uint8, rows rounded up."""
        shifted = (self.values + 8).to(torch.uint8)
        if shifted.shape[1] % 2:
            shifted = torch.nn.functional.pad(shifted, (0, 1))
        return shifted[:, 0::2] | (shifted[:, 1::2] << 4)


def quantised(weight: torch.Tensor, scheme: Scheme) -> Quantised | None:
    """The nearest weight of the scheme; None for one with NaN, an infinity or nothing in it.

    Args:
        weight: float32, of two axes or more.
        scheme: bits, and numbers that share a scale.
    """
    if weight.numel() == 0 or not bool(torch.isfinite(weight).all()):
        return None
    rows = weight.detach().reshape(weight.shape[0], -1)
    columns = rows.shape[1]
    group = scheme.group or columns
    group = group if columns % group == 0 else columns
    grouped = rows.reshape(rows.shape[0], -1, group)
    scales = _cut(grouped.abs().amax(-1) / scheme.most)
    divisors = torch.where(scales == 0, torch.ones_like(scales), scales)[..., None]
    exact = torch.where(scales[..., None] == 0, torch.zeros_like(grouped), grouped / divisors)
    values = _balanced(exact, scheme.most).to(torch.int8).reshape(rows.shape)
    scales = scales[:, 0] if scheme.group is None else scales
    return Quantised(tuple(weight.shape), values, scales.bfloat16())


def _balanced(exact: torch.Tensor, most: int) -> torch.Tensor:
    """The nearest integers, some rounded the other way so that a group's sum stays.

    What a layer adds up has a mean, and behind a norm or a ReLU a large one: an error of the sum
    shifts every output by it. Those go the other way that were nearest to a half: little is lost.
    """
    nearest = exact.round().clamp(-most, most)
    error = exact - nearest
    total = error.sum(-1, keepdim=True).round()
    up = total.sign()
    room = (nearest + up).abs() <= most
    urge = torch.where(room, error * up, torch.full_like(error, -1.0))
    rank = urge.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    return torch.where((rank < total.abs()) & room & (urge > 0), nearest + up, nearest)


def _cut(values: torch.Tensor) -> torch.Tensor:
    """Towards nought, to what bfloat16 holds."""
    return (values.contiguous().view(torch.int32) & _UPPER_HALF).view(torch.float32)
