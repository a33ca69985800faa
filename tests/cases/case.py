"""What a case of an operator is, and operands for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
NUMBERS = (*FLOATS, torch.int64, torch.int32, torch.uint8)

# What one rounding of a result and some of its terms may cost, absolute and relative.
_TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 2e-2, torch.float64: 1e-9}


@dataclass(frozen=True, repr=False)
class Case:
    """One call of an operator, and eager's way to the same results.

    `eager` takes the same arguments by the same names, without `out`. Whatever the strides and
    offsets of the operands are, the results are eager's; `strides` says that theirs are too. A
    tolerance is at least what results of the dtype may always have, unless `closely` is set. It is
    not tried with rows that repeat unless it is `crowded`.
    """

    operator: str
    name: str
    arguments: Mapping[str, Any]
    eager: Callable[..., Any]
    strides: bool = False
    tolerance: float | None = None
    closely: bool = False
    crowded: bool = True
    targets: tuple[str, ...] = ("cpu", "metal")

    def __repr__(self) -> str:
        return f"{self.operator}: {self.name}"

    def runs_on(self, target: str) -> bool:
        """Whether the device has the operator, and all the dtypes of the operands."""
        wide = any(t.dtype is torch.float64 for t in tensors(self.arguments))
        return target in self.targets and not (wide and target == "metal")

    def expected(self, arguments: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Eager's results."""
        given = {name: value for name, value in arguments.items() if name != "out"}
        results = self.eager(**given)
        return (results,) if isinstance(results, torch.Tensor) else tuple(results)

    def tolerance_of(self, dtype: torch.dtype) -> float:
        """The largest absolute and relative error of a result of that dtype."""
        if not dtype.is_floating_point:
            return 0
        if self.closely and self.tolerance is not None:
            return self.tolerance
        return max(self.tolerance or 0, _TOLERANCES.get(dtype, 2e-5))


@dataclass(frozen=True, repr=False)
class Refusal:
    """A call that fails, with a message that names the function and this fact."""

    operator: str
    fact: str
    arguments: Mapping[str, Any]
    targets: tuple[str, ...] = ("cpu", "metal")

    def __repr__(self) -> str:
        return f"{self.operator}: {self.fact}"


@dataclass
class Table:
    """The cases and refusals of related operators."""

    cases: list[Case] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def add(
        self,
        operator: str,
        name: str,
        arguments: Mapping[str, Any],
        eager: Callable[..., Any],
        **rest: Any,
    ) -> None:
        """Adds a case."""
        self.cases.append(Case(operator, name, arguments, eager, **rest))

    def refuse(self, operator: str, fact: str, /, **arguments: Any) -> None:
        """Adds a refusal."""
        self.refusals.append(Refusal(operator, fact, arguments))


def floats(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Normally distributed numbers, the same for the same arguments."""
    generator = torch.Generator().manual_seed(seed + 100 * len(sizes) + sum(sizes))
    return torch.randn(sizes, generator=generator).to(dtype)


def integers(
    *sizes: int, low: int = -4, high: int = 5, dtype: torch.dtype = torch.int64, seed: int = 0
) -> torch.Tensor:
    """Evenly distributed whole numbers from low to high - 1, with repetitions."""
    generator = torch.Generator().manual_seed(seed + 100 * len(sizes) + sum(sizes))
    return torch.randint(low, high, sizes, generator=generator).to(dtype)


def numbers(*sizes: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Numbers of any dtype."""
    if dtype.is_floating_point:
        return floats(*sizes, dtype=dtype, seed=seed)
    low = -4 if dtype.is_signed else 0
    return integers(*sizes, low=low, high=2 if dtype is torch.bool else 5, dtype=dtype, seed=seed)


def short(dtype: torch.dtype) -> str:
    """`float16` of `torch.float16`, for names of cases."""
    return str(dtype).removeprefix("torch.")


def tensors(arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    """All operands, those in lists too."""
    found = []
    for value in arguments.values():
        values = value if isinstance(value, list | tuple) else [value]
        found += [v for v in values if isinstance(v, torch.Tensor)]
    return found


@st.composite
def relaid(draw: st.DrawFn, value: torch.Tensor) -> torch.Tensor:
    """The same values elsewhere: axes in another order, gaps between them, an offset.

    What is in the gaps is poison. Axes of stride zero stay so. The stride of an axis of one
    element is any: it means nothing.
    """
    axes = draw(st.permutations(range(value.dim())))
    strides = [0] * value.dim()
    running = 1
    for axis in axes:
        if value.stride(axis) == 0 and value.shape[axis] > 1:
            continue
        strides[axis] = running * draw(st.integers(1, 2))
        running = max(strides[axis] * value.shape[axis], 1) + draw(st.integers(0, 1))
        if value.shape[axis] == 1:
            strides[axis] = draw(st.sampled_from([strides[axis], 0, 1]))
    return _placed(value, strides, draw(st.integers(0, 3)))


def _placed(value: torch.Tensor, strides: Sequence[int], offset: int) -> torch.Tensor:
    reach = sum((n - 1) * s for n, s in zip(value.shape, strides, strict=True) if n > 0)
    poison = torch.nan if value.is_floating_point() else 1
    storage = torch.full((offset + reach + 3,), poison, dtype=value.dtype)
    view = storage.as_strided(value.shape, strides, offset)
    # One element of each repeated run; torch refuses to write an expanded view.
    once = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
    view[once].copy_(value[once])
    return view


@st.composite
def relaid_arguments(draw: st.DrawFn, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with every operand relaid."""

    def again(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return draw(relaid(value))
        if isinstance(value, list):
            return [again(v) for v in value]
        return value

    return {name: again(value) for name, value in arguments.items()}


# What must stay sorted, and what is written to.
_NOT_CROWDED = {"sorted_sequence", "boundaries", "out"}


def may_be_crowded(case: Case) -> bool:
    """Whether the case has an operand for `crowded_arguments`."""
    named = case.arguments.items()
    return case.crowded and any(_is_crowdable(case, name, value) for name, value in named)


def _is_crowdable(case: Case, name: str, value: object) -> bool:
    floating = isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1
    written = name == "other" and case.operator.endswith("binary_")
    return floating and name not in _NOT_CROWDED and not written


@st.composite
def crowded_arguments(draw: st.DrawFn, case: Case) -> dict[str, Any]:
    """The case's arguments, of other values: elements of the floating operands share memory.

    Each axis of such an operand is repeated (stride zero), slides by one element as a window does
    (stride one), or is that of a contiguous tensor.
    """

    def crowded(value: torch.Tensor) -> torch.Tensor:
        dense = value.contiguous()
        strides = [draw(st.sampled_from([0, min(1, s), s])) for s in dense.stride()]
        return dense.as_strided(dense.shape, strides)

    return {
        name: crowded(value) if _is_crowdable(case, name, value) else value
        for name, value in case.arguments.items()
    }
