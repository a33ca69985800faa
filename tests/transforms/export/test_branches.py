"""Branches and loops of torch, and losses, as torch.export records them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

from tests.pieces import Apply, assert_as_eager
from transforms import convert
from zoo.errors import MenagerieError

if TYPE_CHECKING:
    from pathlib import Path


def twice(x: torch.Tensor) -> Any:
    """A loop and a branch that are each given two values which are equal."""
    steps = x[0].long()
    start = torch.zeros_like(steps), x.clone(), x.clone()
    end = while_loop(lambda i, *_: i < steps, lambda i, y, m: (i + 1, y * 2, y + m), start)
    return end, torch.cond(steps > 2, torch.mul, lambda a, b: a - b + 1, (x + 1, x + 1))


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_branches_and_loops_run_by_value(target: str, tmp_path: Path) -> None:
    """As eager does, which goes on to answer in this process; passes merge no equal values."""
    calls = [(torch.full((3,), steps),) for steps in (3.0, 0.0, 1.0)]
    made = convert(Apply(twice), calls[0], target=target, out=tmp_path / "b", measure_seconds=0)
    assert_as_eager(made.folder, twice, *calls)


def scanned(x: torch.Tensor) -> Any:
    """A scan whose state is a dictionary."""
    carry = {"a": torch.zeros(3), "b": torch.ones(3)}
    return scan(lambda c, y: ({"a": c["a"] + y, "b": c["b"] * y}, [c["a"] - y]), carry, x)


def looped(x: torch.Tensor) -> Any:
    """A loop that goes on while a number is small."""
    body = lambda i, c: (i + 1, {"a": c["a"] + c["b"], "b": c["b"] * 2})  # noqa: E731
    return while_loop(lambda i, _: i < 3, body, (torch.tensor(0), {"a": x, "b": x + 1}))


def recurred(x: torch.Tensor) -> Any:
    """A linear recurrence over rows, and backwards over columns."""
    step = lambda a, b: [a[0] * b[0], a[1] * b[0] + b[1]]  # noqa: E731
    how, pairs = {"combine_mode": "generic"}, [x, x + 1]
    return associative_scan(step, pairs, 0, **how), associative_scan(step, pairs, 1, True, **how)


def lost(x: torch.Tensor) -> Any:
    """Losses with a target of 1 and -1, and of rows, of which two are chosen."""
    signs, labels, results = x.sign(), torch.arange(x.shape[0]) % 3, list[Any]()
    for r in ("none", "mean", "sum"):
        results.append(F.hinge_embedding_loss(x, signs, 0.3, reduction=r))
        results.append(F.margin_ranking_loss(x, x.flip(0), signs, 0.3, reduction=r))
        results.append(F.nll_loss(x, labels, x[0], ignore_index=1, reduction=r))
    losses = F.cross_entropy(x, labels, reduction="none")
    return results, losses, losses.topk(2).values, losses.std(), F.cross_entropy(x, labels)


@pytest.mark.parametrize("function", [scanned, looped, recurred, lost])
def test_loops_and_losses_of_a_dynamic_length_are_eagers(function: Any, tmp_path: Path) -> None:
    """Eager compiles these loops by itself; each length of the range is tried."""
    module, sizes = Apply(function), ({0: torch.export.Dim("n", min=2, max=9)},)
    convert(module, (torch.randn(4, 3),), dynamic_shapes=sizes, out=tmp_path / "made")
    calls = ((torch.randn(n, 3),) for n in range(2, 10))
    assert_as_eager(tmp_path / "made", module, *calls, rtol=1e-5, atol=1e-5)


def test_what_else_to_write_is_said(tmp_path: Path) -> None:
    """With the line, and the operator by the name that users know."""
    sizes = torch.tensor([[1, 2]]), torch.tensor([6]), torch.tensor([2])
    for function, said in (
        (lambda x: torch.histogram(x, 5, range=(-1.0, 1.0))[0], r"aten.histogram(.|\n)*histc"),
        (lambda x: F.ctc_loss(x, *sizes), "operator aten.ctc_loss.Tensor. Leave the loss out"),
    ):
        with pytest.raises(MenagerieError, match=r"\w+.py:\d+(.|\n)*" + said):
            convert(Apply(function), (torch.randn(6, 1, 4),), out=tmp_path / "made")
