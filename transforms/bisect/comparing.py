"""Judges tensors of two runs of one program by the tolerances of a model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from menagerie.validation.compare import compare
from transforms.graph.record import module_path, source_line
from zoo.errors import MenagerieError
from zoo.records import Divergence, DivergenceStage
from zoo.spec import DEFAULT_TOLERANCES, Dtype, Tolerance

if TYPE_CHECKING:
    from torch.fx import Node

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


# Lowers a program, runs it on the target, and returns its outputs in order.
Runner = Callable[[torch.export.ExportedProgram, Sequence[torch.Tensor]], Sequence[torch.Tensor]]


def divergence_at(stage: DivergenceStage, node: Node, distance: Difference) -> Divergence:
    """The record of a wrong node, with where in the model it comes from."""
    file, line = source_line(node)
    return Divergence(
        stage=stage,
        pass_name=None,
        node=node.name,
        operator=str(node.target),
        module_path=module_path(node),
        source_line=f"{file}:{line}" if file else "",
        max_abs=distance.max_abs,
        snr_db=distance.snr_db,
    )


def is_probe(node: Node) -> bool:
    """Whether a node is a computed tensor of real numbers: integers may tip over by rounding."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    return comparable(value) and value.is_floating_point()


class Deadline:
    """A moment after which a search makes do with what it knows.

    Args:
        seconds: from now on; None: for ever.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = time.monotonic() + (math.inf if seconds is None else seconds)

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end

    def check(self, what: str) -> None:
        """Raise MenagerieError when it is over; `what` did not come about in time."""
        if self.passed:
            raise MenagerieError("bisect", f"the time was up before {what}")
