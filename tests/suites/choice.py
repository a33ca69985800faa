"""Which samples of a case are converted: those that differ, less what no artifact can do."""

from __future__ import annotations

import dataclasses
import itertools
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import torch

from tests.suites.cases import Call, Together, cases

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_DRAWS = re.compile(
    r"aten\.(rand|normal|bernoulli|multinomial|uniform|exponential|geometric|cauchy|log_normal"
    r"|poisson(?!_nll)|binomial|dropout|native_dropout|feature_(alpha_)?dropout|alpha_dropout|rrelu)"
)
_EMPTY = re.compile(r"aten\.(new_)?empty")
_SPARE = 8  # samples that are tried beyond those wanted
_LEAST, _MORE = 2, 5  # the least dynamic size, and how many more than a sample's is the largest
_MOST_EMPTY = 1  # samples of a case whose results have no element


class Left(StrEnum):
    """Why a sample is left out: what no converter of fixed programs can do."""

    NOT_EXPORTED = "not exported"  # torch.export refuses it
    RANDOM = "random"  # it draws random numbers
    SHAPED_BY_DATA = "shaped by data"  # a size depends on values
    COMPLEX = "complex"  # an input or a result is complex
    NO_TENSOR = "no tensor"  # it has no input or no result that is a tensor
    EAGER_FAILS = "eager fails"
    UNINITIALISED = "uninitialised"  # a result is memory as it was
    NOTHING_FINITE = "nothing finite"  # a result has no finite element
    EMPTY = "empty"  # no result has an element


@dataclasses.dataclass(frozen=True)
class Choice:
    """What is converted of a case.

    Attributes:
        calls: its samples.
        dynamic: one of them whose first axis torch.export takes as dynamic, or None.
        axes: by input of that, whether axis 0 varies.
        low: the least size of that axis.
        left: why there are no samples; empty where there are some.
        text: what eager or torch.export said of it.
    """

    calls: tuple[Call, ...] = ()
    dynamic: Call | None = None
    axes: tuple[bool, ...] = ()
    low: int = 0
    left: str = ""
    text: str = ""


def choose(names: Sequence[str], path: Path) -> dict[str, Choice]:
    """The choice of each case, which is also written into a file."""
    torch.set_num_threads(1)
    choices = {name: choice(name) for name in names}
    torch.save(choices, path)
    return choices


def choice(name: str) -> Choice:
    """The samples of a case that are converted."""
    case = cases()[name]
    kept: list[Call] = []
    empty: list[Call] = []
    left: list[tuple[Left, str]] = []
    try:
        for call in itertools.islice(case.calls(), case.budget + _SPARE):
            if len(kept) == case.budget:
                break
            reason, text, writes = left_out(call)
            if reason is Left.EMPTY and len(empty) < _MOST_EMPTY:
                empty.append(dataclasses.replace(call, writes=writes))
            elif reason is None:
                kept.append(dataclasses.replace(call, writes=writes))
            else:
                left.append((reason, text))
    except Exception as error:  # noqa: BLE001 - the generator's, of many kinds
        left.append((Left.EAGER_FAILS, str(error)))
    if not kept:
        reason, text = left[0] if left else (Left.EMPTY if empty else Left.NO_TENSOR, "")
        return Choice(left=reason, text=text)
    calls = tuple([*kept, *empty][: case.budget])
    long = [c for c in kept if c.tensors[0].dim() and c.tensors[0].shape[0] >= _LEAST]
    for call in long[:3]:
        if varying := _varying(call):
            return Choice(calls, call, *varying)
    return Choice(calls)


def left_out(call: Call) -> tuple[Left | None, str, bool]:
    """Why a sample cannot be converted, what was said, and whether it writes into its inputs."""
    held = [t.clone() for t in call.tensors]
    if not held:
        return Left.NO_TENSOR, "", False
    try:
        with torch.no_grad():
            results = call.run(held)
            writes = not all(map(_same, held, call.tensors))
            call = dataclasses.replace(call, writes=writes)
            again = call.run([t.contiguous() for t in call.tensors])  # a program's inputs are so
    except Exception as error:  # noqa: BLE001 - PyTorch's own, of many kinds
        return Left.EAGER_FAILS, str(error), False
    reason, text = _by_results(call, results) or _by_program(call)
    if reason is None and not all(map(_same, results, again)) and not _repeats(call):
        reason = Left.RANDOM
    return reason, text, writes


def _by_results(call: Call, results: Sequence[torch.Tensor]) -> tuple[Left, str] | None:
    if not results:
        return Left.NO_TENSOR, ""
    if any(a.is_complex() for a in (*call.tensors, *results)) or any(
        isinstance(a, complex) for a in call.arguments
    ):
        return Left.COMPLEX, ""
    if not all(r.isfinite().any() for r in results if r.numel() and r.layout is torch.strided):
        return Left.NOTHING_FINITE, ""
    return None


def _repeats(call: Call) -> bool:
    """Whether two runs on the same inputs give the same."""
    with torch.no_grad():
        once, again = (call.run([t.contiguous() for t in call.tensors]) for _ in range(2))
    return all(map(_same, once, again))


def _by_program(call: Call) -> tuple[Left | None, str]:
    try:
        program = exported(call)
    except Exception as error:  # noqa: BLE001 - torch.export's own, of many kinds
        return Left.NOT_EXPORTED, f"{type(error).__name__}: {error}"
    if any(map(_draws, program.graph.nodes)):
        return Left.RANDOM, ""
    [output] = program.graph.find_nodes(op="output")
    if any(_EMPTY.match(str(node.target)) for node in output.all_input_nodes):
        return Left.UNINITIALISED, ""
    values = [node.meta.get("val") for node in program.graph.nodes]
    sizes = [size for v in values if isinstance(v, torch.Tensor) for size in v.shape]
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return Left.SHAPED_BY_DATA, ""
    with torch.no_grad():
        if not any(result.numel() for result in call.run(call.tensors)):
            return Left.EMPTY, ""
    return None, ""


def _draws(node: torch.fx.Node) -> bool:
    """Whether a node draws random numbers, as dropout does in training alone."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    arguments = node.target._schema.arguments
    given = {a.name: a.default_value for a in arguments}
    given |= dict(zip((a.name for a in arguments), node.args, strict=False)) | node.kwargs
    trains = given.get("train", given.get("training", True)) is not False
    drops = (given.get("dropout_p") or 0) > 0
    return drops or (trains and bool(_DRAWS.match(str(node.target))))


def exported(call: Call, shapes: Any = None) -> torch.export.ExportedProgram:
    """The program of a sample alone."""
    together = Together([call])
    wanted = None if shapes is None else {"tensors": shapes}
    with torch.no_grad():
        return torch.export.export(together, together.inputs, dynamic_shapes=wanted, strict=False)


def dynamic_shapes(call: Call, axes: Sequence[bool], low: int, name: str) -> tuple[Any, ...]:
    """The first axis of some inputs from `low` to a few more than it is."""
    dim = torch.export.Dim(name, min=low, max=_size(call, axes) + _MORE)
    return tuple({0: dim} if varies else None for varies in axes)


def _size(call: Call, axes: Sequence[bool]) -> int:
    return next(t.shape[0] for t, varies in zip(call.tensors, axes, strict=True) if varies)


def _varying(call: Call) -> tuple[tuple[bool, ...], int] | None:
    """The inputs whose axis 0 may vary, and its least size; None where it is fixed.

    The first input alone, or all inputs of its size with it; from 2, or from its own size on where
    eager takes no less, as indices go up to it.
    """
    first, *others = call.tensors
    equal = tuple(bool(t.dim()) and t.shape[0] == first.shape[0] for t in others)
    for axes in dict.fromkeys([(True, *(False for _ in others)), (True, *equal)]):
        for low in (_LEAST, first.shape[0]):
            sizes = (low, first.shape[0] + 1, first.shape[0] + _MORE)
            if all(_runs(call, axes, size) for size in sizes):
                if _exports(call, axes, low):
                    return axes, low
                break
    return None


def _runs(call: Call, axes: Sequence[bool], size: int) -> bool:
    """Whether eager takes a sample of another size."""
    pairs = zip(call.tensors, axes, strict=True)
    rows = torch.arange(size)
    given = [t.index_select(0, rows % t.shape[0]) if varies else t for t, varies in pairs]
    try:
        with torch.no_grad():
            call.run(given)
    except Exception:  # noqa: BLE001 - PyTorch's own, of many kinds
        return False
    return True


def _exports(call: Call, axes: Sequence[bool], low: int) -> bool:
    """Whether torch.export takes the axis as dynamic."""
    try:
        program = exported(call, dynamic_shapes(call, axes, low, "n"))
    except Exception:  # noqa: BLE001 - torch.export's own, of many kinds
        return False
    inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    sizes = [size for v in inputs if isinstance(v, torch.Tensor) for size in v.shape]
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    # By values: a batch norm in training writes without counting a version.
    return torch.equal(a.nan_to_num(), b.nan_to_num()) if a.layout is torch.strided else True
