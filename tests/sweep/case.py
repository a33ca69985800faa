"""One architecture of the sweep: how to build it small, what to call it with, what may vary."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

Range = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """A module and a call of it.

    Attributes:
        module: in eval mode, with random weights.
        inputs: tensors by the names of forward's parameters.
        axes: for each input that has any, the names of its dynamic axes; None where one is fixed.
        ranges: lowest and highest size of each name.
    """

    module: torch.nn.Module
    inputs: dict[str, torch.Tensor]
    axes: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)

    def shapes(self, wanted: set[str]) -> dict[str, dict[int, Any]] | None:
        """torch.export's `dynamic_shapes` with only the wanted names dynamic; None without any."""
        if not wanted:
            return None
        sizes = {
            n: torch.export.Dim(n, min=low, max=high) for n, (low, high) in self.ranges.items()
        }
        return {
            name: {
                axis: sizes[size]
                for axis, size in enumerate(self.axes.get(name, ()))
                if size in wanted and size is not None
            }
            for name in self.inputs
        }

    def by_position(self, shapes: dict[str, dict[int, Any]] | None) -> Any:
        """`shapes` as a module's call by position has them, whatever it calls its parameters."""
        if shapes is None:
            return None
        made = tuple(shapes.values())
        parameters = inspect.signature(self.module.forward).parameters.values()
        variadic = next(iter(parameters)).kind is inspect.Parameter.VAR_POSITIONAL
        return (made,) if variadic else made


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        name: as the library calls the builder or the architecture.
        library: its distribution.
        family: the group that the summary counts it in.
        build: makes the sample; torch's seed is set before.
    """

    name: str
    library: str
    family: str
    build: Callable[[], Sample]


def noise(*shape: int) -> torch.Tensor:
    """Floats of the standard normal distribution."""
    return torch.randn(shape)


def image(size: int, batch: int = 2, channels: int = 3) -> torch.Tensor:
    """(batch, channels, size, size)."""
    return noise(batch, channels, size, size)


def ids(batch: int, length: int, below: int, *, low: int = 3) -> torch.Tensor:
    """Tokens (batch, length), int64, from `low` (the first are often special) to below `below`."""
    return torch.randint(low, below, (batch, length))


def mask(batch: int, length: int) -> torch.Tensor:
    """Ones (batch, length), int64; in the last row the last two are 0."""
    made = torch.ones(batch, length, dtype=torch.int64)
    made[-1, -2:] = 0
    return made
