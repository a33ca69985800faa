"""Judges tensors of two runs of one program by the tolerances of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from menagerie.validation.compare import compare
from zoo.spec import DEFAULT_TOLERANCES, Dtype, Tolerance

__all__ = ["Difference", "Tolerances", "comparable", "default_tolerances", "difference", "to_numpy"]

Tolerances = Callable[[Dtype], Tolerance | None]
_NAMES = frozenset(str(d) for d in Dtype)


@dataclass(frozen=True)
class Difference:
    """How far a tensor is from eager's, in its own units and in decibels."""

    max_abs: float
    snr_db: float
    passed: bool


def default_tolerances(dtype: Dtype) -> Tolerance | None:
    """What a model without tolerances of its own allows; None: bit for bit."""
    return DEFAULT_TOLERANCES.get(dtype)


def comparable(value: Any) -> bool:
    """Whether a value is a tensor of an element type that artifacts know."""
    return isinstance(value, torch.Tensor) and _dtype_name(value) in _NAMES


def difference(expected: torch.Tensor, actual: torch.Tensor, tolerances: Tolerances) -> Difference:
    """Compare as the validation of an artifact does; a wrong shape or dtype never passes."""
    dtype = Dtype(_dtype_name(expected))
    if expected.dtype != actual.dtype:
        return Difference(float("inf"), float("-inf"), passed=False)
    parity = compare(
        to_numpy(expected), to_numpy(actual), dtype, tolerances(dtype), case=0, name="output"
    )
    return Difference(parity.max_abs, parity.snr_db, parity.passed)


def to_numpy(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor as a dense array; bfloat16, which numpy lacks, as its bits in uint16."""
    value = value.detach().cpu().contiguous()
    if value.dtype is torch.bfloat16:
        return value.view(torch.int16).numpy().view(np.uint16)
    return value.numpy()


def _dtype_name(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
