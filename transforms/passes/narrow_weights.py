"""Rounds weights to a type of half the bytes, in which the bundle then keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from transforms.graph.graph_pass import GraphPass, Journal
from zoo.errors import UsageError
from zoo.spec import Precision

if TYPE_CHECKING:
    from transforms.graph.editor import ProgramEditor

__all__ = ["NarrowWeights", "may_narrow"]

_LEAST_AXES = 2


def may_narrow(value: torch.Tensor) -> bool:
    """Whether a constant is a weight that weighs: float32, and more than a bias or a statistic."""
    return value.dtype is torch.float32 and value.dim() >= _LEAST_AXES


class NarrowWeights(GraphPass):
    """Replaces weights of float32 with the nearest numbers of float16 or bfloat16.

    The graph stays one of float32: what it computes with the rounded weights is what the artifact
    computes, since a bundle keeps such a weight in the narrow type and the runtime widens it when
    it is loaded. So the file shrinks to half, products and sums lose nothing to the narrow type,
    and no run is slower than float32's: no processor that we compile for multiplies these types
    faster than float32 without AMX.

    Rounded are constants of at least two axes; biases, gains and statistics weigh little and stay.
    Refused is a weight that float16 cannot hold: one with larger numbers, or numbers so small that
    the rounding's norm exceeds the half unit that a normal number may lose.

    Args:
        dtype: `float16` or `bfloat16`.

    Raises:
        UsageError: another dtype is asked for.
    """

    name = "narrow_weights"
    summary = "Replaces float32 weights with the nearest of a type that takes half the bytes"

    def __init__(self, dtype: str = "float16") -> None:
        known = [Precision.FLOAT16.value, Precision.BFLOAT16.value]
        if dtype not in known:
            fact = f"cannot keep weights in {dtype!r}"
            raise UsageError(f"pass {self.name}", fact, f"Known: {', '.join(known)}")
        self._dtype: torch.dtype = getattr(torch, dtype)

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Round every weight that may be."""
        rounded = 0
        for node in editor.graph.nodes:
            value = editor.constant(node)
            if value is None or not may_narrow(value):
                continue
            wide = value.to(self._dtype).to(value.dtype)
            reason = _refusal(value, wide, self._dtype)
            if reason:
                journal.refused(node, reason)
                continue
            editor.set_constant(node, wide)
            rounded += 1
        if rounded:
            journal.changed(f"rounded {rounded} weights to {self._dtype}, to compute in float32")


def _refusal(exact: torch.Tensor, wide: torch.Tensor, dtype: torch.dtype) -> str:
    """Why a weight is better left as it is; empty: nothing is against its rounding."""
    finite = torch.isfinite(exact)
    if not torch.equal(finite, torch.isfinite(wide)):
        return f"has numbers up to {exact[finite].abs().max():.3g}, which {dtype} does not hold"
    error = (wide - exact)[finite].double().norm()
    if error > torch.finfo(dtype).eps / 2 * exact[finite].double().norm():
        return f"has numbers too small for {dtype} to keep their digits"
    return ""
