"""Elementwise operators on special values: as eager PyTorch, or listed in docs/special-values.md.

Several operators share a program; the values are its inputs, so that nothing can be computed
beforehand. A test that fails prints the table's lines that its run has found.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.special import entr, erfcx, i0e, i1, i1e, log_ndtr, ndtr, ndtri, xlog1py, zeta

import menagerie
from transforms import convert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

DOCUMENT = Path(__file__).parents[3] / "docs/special-values.md"
OUTPUTS = 32  # of one program
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
TARGETS = ("cpu", "metal")
_FLUSHED = (torch.float32, torch.bfloat16)  # subnormals of these, by Apple's GPUs
IN_EVERY_RUN = {("cpu", torch.float32), ("cpu", torch.int64)}


def _words(text: str) -> list[str]:
    return text.split()


_ONE_FLOAT: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in _words(
            "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv "
            "exp exp2 expm1 floor frac i0 isfinite isinf isnan isneginf isposinf lgamma log log10 "
            "log1p log2 logical_not logit nan_to_num neg rad2deg reciprocal relu round rsqrt sgn "
            "sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc"
        )
    },
    **{
        name: getattr(F, name)
        for name in _words(
            "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish "
            "relu6 selu silu softplus softshrink softsign tanhshrink"
        )
    },
    "gelu(tanh)": lambda x: F.gelu(x, approximate="tanh"),
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "clamp(0.5, 2)": lambda x: x.clamp(0.5, 2),
    "entr": entr,
    "erfcx": erfcx,
    "i0e": i0e,
    "i1": i1,
    "i1e": i1e,
    "log_ndtr": log_ndtr,
    "ndtr": ndtr,
    "ndtri": ndtri,
    "x * 0": lambda x: x * 0,
    "x ** 2": lambda x: x**2,
    "x ** 3": lambda x: x**3,
    "x ** 0.5": lambda x: x**0.5,
    "x ** -0.5": lambda x: x**-0.5,
    "x ** -1": lambda x: x**-1,
    "2 ** x": lambda x: 2**x,
    "x / 3": lambda x: x / 3,
    "x // 3": lambda x: x // 3,
    "x % 3": lambda x: x % 3,
    "round(decimals=1)": lambda x: torch.round(x, decimals=1),
    "bool": lambda x: x.to(torch.bool),
    "float16": lambda x: x.to(torch.float16),
    "bfloat16": lambda x: x.to(torch.bfloat16),
    "frexp mantissa": lambda x: torch.frexp(x)[0],
    "frexp exponent": lambda x: torch.frexp(x)[1],
}
_TWO_FLOATS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    name: getattr(torch, name)
    for name in _words(
        "add sub mul div floor_divide fmod remainder pow atan2 copysign maximum minimum fmax fmin "
        "hypot nextafter logaddexp logaddexp2 xlogy heaviside eq ne lt le gt ge logical_and "
        "logical_or logical_xor ldexp"
    )
} | {
    "div(trunc)": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "where": lambda x, y: torch.where(x > y, x, y),
    "clamp(y, 2)": lambda x, y: torch.clamp(x, y, torch.full_like(y, 2)),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "xlog1py": xlog1py,
    "zeta": zeta,
    "prelu": lambda x, y: torch.where(x > 0, x, x * y),
}
_ONE_INTEGER: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(torch, name)
    for name in _words(
        "abs neg sign signbit sgn square bitwise_not logical_not relu isfinite isnan isinf sqrt exp"
    )
} | {
    "x * 0": lambda x: x * 0,
    "x ** 2": lambda x: x**2,
    "x ** 3": lambda x: x**3,
    "x / 3": lambda x: x / 3,
    "x // 3": lambda x: x // 3,
    "x % 3": lambda x: x % 3,
    "fmod 3": lambda x: torch.fmod(x, 3),
    "clamp(1, 2)": lambda x: x.clamp(1, 2),
    "float32": lambda x: x.to(torch.float32),
    "float16": lambda x: x.to(torch.float16),
    "uint8": lambda x: x.to(torch.uint8),
    "int32": lambda x: x.to(torch.int32),
    "int64": lambda x: x.to(torch.int64),
    "bool": lambda x: x.to(torch.bool),
}
_TWO_INTEGERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    name: getattr(torch, name)
    for name in _words(
        "add sub mul div floor_divide fmod remainder maximum minimum eq lt ge logical_and "
        "logical_xor bitwise_and bitwise_or bitwise_xor"
    )
} | {
    "div(trunc)": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "x << y": lambda x, y: x << (y & 7),
    "x >> y": lambda x, y: x >> (y & 7),
    "where": lambda x, y: torch.where(x > y, x, y),
}
_ONE_BOOL: dict[str, Callable[[Tensor], Tensor]] = {
    "logical_not": torch.logical_not,
    "float32": lambda x: x.to(torch.float32),
    "int64": lambda x: x.to(torch.int64),
    "uint8": lambda x: x.to(torch.uint8),
}
_TWO_BOOLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    name: getattr(torch, name)
    for name in _words(
        "add mul maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and "
        "bitwise_or bitwise_xor div"
    )
}


@dataclass(frozen=True)
class Case:
    """An operator of one dtype, and what it is tried on."""

    name: str
    dtype: torch.dtype
    function: Callable[..., Tensor]
    operands: int

    def __call__(self, *operands: Tensor) -> Tensor:
        """The operator's result."""
        return self.function(*operands[: self.operands])


@dataclass(frozen=True)
class Difference:
    """Where an artifact differs from eager: a line of the document's table, but for its reason."""

    operator: str
    dtype: str
    target: str
    operands: str
    eager: str
    artifact: str

    @property
    def line(self) -> str:
        """What the document lacks, but for the reason."""
        cells = (*self.key, self.operands, self.eager, self.artifact, "")
        return f"| {' | '.join(cells)} |"

    @property
    def key(self) -> tuple[str, str, str]:
        """What a line is found by."""
        return self.operator, self.dtype, self.target


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _cases(dtype: torch.dtype) -> list[Case]:
    if dtype is torch.bool:
        one, two = _ONE_BOOL, _TWO_BOOLS
    else:
        one, two = (
            (_ONE_FLOAT, _TWO_FLOATS) if dtype.is_floating_point else (_ONE_INTEGER, _TWO_INTEGERS)
        )
    cases = [
        *(Case(name, dtype, function, 1) for name, function in one.items()),
        *(Case(name, dtype, function, 2) for name, function in two.items()),
    ]
    return [case for case in cases if _takes(case)]


def _takes(case: Case) -> bool:
    """Whether eager PyTorch has the operator for the dtype."""
    try:
        case(*_examples(case.dtype))
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _examples(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Operands of conversion: ordinary numbers in every operator's domain."""
    torch.manual_seed(0)
    count = len(_special(dtype)[0])
    if dtype is torch.bool:
        return torch.rand(count) > 0.5, torch.rand(count) > 0.5
    if dtype.is_floating_point:
        low, high = torch.rand(2, count) * 0.5 + 0.25
        low[::2] += 1  # acosh takes these, acos the others
        return low.to(dtype), high.to(dtype)
    return torch.randint(1, 9, (count,), dtype=dtype), torch.randint(1, 9, (count,), dtype=dtype)


def _special(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Every pair of special values."""
    if dtype is torch.bool:
        values = [False, True]
    elif dtype.is_floating_point:
        limits = torch.finfo(dtype)
        positive = [0.0, limits.smallest_normal / 4, limits.smallest_normal, 0.001, 0.1, 0.5, 1.0]
        positive += [1.5, 2.0, 2.5, 3.0, 7.25, 100.0, 30000.0, limits.max, math.inf]
        values = [*positive, *(-value for value in positive), math.nan]
    else:
        ends = torch.iinfo(dtype)
        values = [0, 1, 2, 3, 7, 100, ends.max - 1, ends.max, ends.min, ends.min + 1]
        values += [-1, -2, -7, -100] if ends.min < 0 else [200]
    pairs = list(product(values, values))
    first, second = (torch.tensor([pair[i] for pair in pairs], dtype=dtype) for i in (0, 1))
    return first, second


class _Many(torch.nn.Module):
    def __init__(self, cases: tuple[Case, ...]) -> None:
        super().__init__()
        self.cases = cases

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        return tuple(case(first, second) for case in self.cases)


def _differences(cases: tuple[Case, ...], target: str) -> Iterator[Difference]:
    """What differs of these, which share a dtype."""
    dtype = cases[0].dtype
    first, second = _special(dtype)
    if not dtype.is_floating_point and dtype is not torch.bool:
        second = torch.where(second == 0, torch.ones_like(second), second)
        # Eager's own division of the least number by -1 towards zero ends its process.
        first = torch.where((second == -1) & (first == torch.iinfo(dtype).min), 5, first)
    with tempfile.TemporaryDirectory() as folder:
        bundle = convert(
            _Many(cases).eval(),
            _examples(dtype),
            target=target,
            out=Path(folder) / "bundle",
            measure_seconds=0,
            tolerances={_name(d): 2.0 for d in FLOATS},
        )
        with menagerie.open(bundle.folder) as session:
            names = [each.name for each in session.inputs]
            found = session.run(dict(zip(names, (_array(first), _array(second)), strict=True)))
    for case, artifact in zip(cases, found.values(), strict=True):
        eager = _expected(case, target, (first, second))
        result = _tensor(artifact, eager[0].dtype)
        difference = _compared(case, target, (first, second), eager, result)
        if difference is not None:
            yield difference


def _array(tensor: Tensor) -> Any:
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def _tensor(array: Any, dtype: torch.dtype) -> Tensor:
    if dtype is torch.bfloat16:
        return torch.from_numpy(np.asarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.asarray(array))


def _expected(case: Case, target: str, operands: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Eager's results; of what a GPU flushes, those of flushed operands and flushed results too."""
    results = [case(*operands)]
    if target == "metal" and case.dtype in _FLUSHED:
        results.append(case(*map(_flushed, operands)))
        results += [_flushed(each) for each in results if each.dtype in _FLUSHED]
    return results


def _flushed(values: Tensor) -> Tensor:
    small = values.abs() < torch.finfo(values.dtype).smallest_normal
    return torch.where(small, torch.copysign(torch.zeros_like(values), values), values)


def _compared(
    case: Case,
    target: str,
    operands: tuple[Tensor, Tensor],
    expected: list[Tensor],
    artifact: Tensor,
) -> Difference | None:
    """The first place where it differs from all that is expected."""
    eager = expected[0]
    assert artifact.dtype == eager.dtype
    same = torch.stack([_same(each, artifact) for each in expected]).any(0)
    if bool(same.all()):
        return None
    different = (~same).nonzero().flatten().tolist()
    at = max(different, key=lambda i: _is_ordinary(case, [o[i] for o in operands], eager[i]))
    shown = ", ".join(_shown(each[at]) for each in operands[: case.operands])
    return Difference(
        case.name, _name(case.dtype), target, shown, _shown(eager[at]), _shown(artifact[at])
    )


def _same(eager: Tensor, artifact: Tensor) -> Tensor:
    if not eager.dtype.is_floating_point:
        return eager == artifact
    relative = max(16 * torch.finfo(eager.dtype).eps, 4e-6)
    smallest = float(torch.finfo(eager.dtype).smallest_normal * torch.finfo(eager.dtype).eps)
    a, b = eager.double(), artifact.double()
    same = torch.isclose(a, b, rtol=relative, atol=8 * smallest, equal_nan=True)
    return same & ((a != 0) | (torch.signbit(a) == torch.signbit(b)) & (b == 0))


def _is_ordinary(case: Case, operands: list[Tensor], eager: Tensor) -> bool:
    """Whether a difference is one that people would meet first."""
    return all(0.001 <= abs(float(x)) <= 1000 for x in [*operands[: case.operands], eager])


def _shown(value: Tensor) -> str:
    return f"{value.item():.7g}" if value.dtype.is_floating_point else str(value.item())


def _programs(*dtypes: torch.dtype) -> list[tuple[Case, ...]]:
    """The operators of these dtypes, as many at a time as share a program."""
    programs = []
    for dtype in dtypes:
        cases = _cases(dtype)
        programs += [tuple(cases[i : i + OUTPUTS]) for i in range(0, len(cases), OUTPUTS)]
    return programs


def _documented() -> dict[tuple[str, str, str], str]:
    """The operands of each difference that the document lists, by operator, dtype and target."""
    rows = [line.split("|")[1:-1] for line in DOCUMENT.read_text().splitlines() if "| " in line]
    cells = [[cell.strip() for cell in row] for row in rows if len(row) == 7]
    known = {}
    for operator, dtypes, targets, operands, *_ in cells[1:]:
        for dtype, target in product(dtypes.split(), targets.split()):
            assert (operator, dtype, target) not in known, "listed twice"
            known[operator, dtype, target] = operands
    return known


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        pytest.param(
            target,
            dtype,
            id=f"{target}-{_name(dtype)}",
            marks=() if (target, dtype) in IN_EVERY_RUN else pytest.mark.sweep,
        )
        for target in TARGETS
        for dtype in (*FLOATS, *INTEGERS, torch.bool)
    ],
)
def test_special_values_are_as_eagers_or_listed(target: str, dtype: torch.dtype) -> None:
    """No operator differs that the document does not list; each that it lists still differs."""
    found = [each for part in _programs(dtype) for each in _differences(part, target)]
    listed = {key for key in _documented() if key[1:] == (_name(dtype), target)}
    lines = "\n".join(each.line for each in found)
    assert {each.key for each in found} == listed, lines


def test_every_listed_operator_is_tried() -> None:
    """A line of the document is of an operator and a dtype that the tests have."""
    dtypes = {_name(dtype): dtype for dtype in (*FLOATS, *INTEGERS, torch.bool)}
    names = {name: {case.name for case in _cases(dtype)} for name, dtype in dtypes.items()}
    for operator, dtype, target in _documented():
        assert target in TARGETS
        assert operator in names[dtype]
