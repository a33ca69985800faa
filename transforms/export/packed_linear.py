"""torchao's linear layer with a weight of four bits, where torchao has none for this machine.

`torchao::_linear_fp_act_4bit_weight(A, B, group_size, S, Z)` is what torchao's experimental
quantisation for Metal makes of a linear layer (pytorch/ao, torchao/experimental: quant_api.py,
kernels/mps/src/packing.h). Its library is of Macs alone. Where nobody has declared the operator, it
is declared here, with torchao's signature; where it has no kernel for the CPU, it gets one, which
golden values are computed with. On Metal the runtime computes it; the CPU's has no such kernel, and
lowering for it says so.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

_NAME = "torchao::_linear_fp_act_4bit_weight"
_SIGNATURE = "(Tensor A, Tensor B, int group_size, Tensor S, Tensor Z) -> Tensor"


def packed_linear(A: Tensor, B: Tensor, group_size: int, S: Tensor, Z: Tensor) -> Tensor:  # noqa: N803
    """A times a transposed weight of S q + Z, summed up in float32.

    Args:
        A: (M, K), floating.
        B: (N, K / 2), uint8: two numbers q of 0 to 15 a byte, the first in its lower half.
        group_size: numbers of a row that share a scale; divides K.
        S: (N, K / group_size), scales.
        Z: (N, K / group_size), what is added to each product of a scale: minus the whole number
            that stands for nought, times the scale.

    Returns:
        (M, N), of A's dtype.
    """
    numbers = torch.stack((B & 15, B >> 4), -1).flatten(1).float()
    scales, offsets = (t.float().repeat_interleave(group_size, 1) for t in (S, Z))
    return (A.float() @ (numbers * scales + offsets).t()).to(A.dtype)


def _shape_only(A: Tensor, B: Tensor, *_: object) -> Tensor:  # noqa: N803
    return A.new_empty(A.shape[0], B.shape[0])


@functools.cache
def declare_packed_linear() -> torch.library.Library:
    """See to it that the operator can be called on the CPU and traced, for the rest of the process.

    Who has torchao's own library for Metal imports that first.

    Returns:
        What holds the declarations, kept alive by this cache.
    """
    library = torch.library.Library("torchao", "FRAGMENT")  # type: ignore[no-untyped-call]
    if not torch._C._dispatch_has_kernel(_NAME):
        library.define(_NAME.removeprefix("torchao::") + _SIGNATURE)  # type: ignore[no-untyped-call]
    for key, body in (("CPU", packed_linear), ("Meta", _shape_only)):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(_NAME, key):
            library.impl(_NAME, body, key)  # type: ignore[no-untyped-call]
    return library
