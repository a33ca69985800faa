"""ProgramEditor: a program that writes in place is edited as one that returns what it writes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from transforms import run_passes

_PASSES = ["fold_constants", "merge_common_subexpressions", "remove_dead_code"]


class _Writer(nn.Module):
    """A function of a tensor, a buffer, statistics and a weight that nothing reads."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.unused = nn.Parameter(torch.randn(3))
        self.register_buffer("state", torch.zeros(2, 3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _over_a_result(m: _Writer, x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    before = y.sin()
    y.view(-1)[2:].add_(1)
    return before + y.sin() + m.state


def _over_the_input(_: _Writer, x: torch.Tensor) -> torch.Tensor:
    before = x.exp()
    x.t()[0].mul_(2)
    return before + x.exp()


def _over_a_buffer(m: _Writer, x: torch.Tensor) -> torch.Tensor:
    before = m.state * 2
    m.state.view(6)[1:].add_(x.reshape(6)[1:])
    return before + m.state * 2


def _through_a_composite_view(_: _Writer, x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    torch.einsum("ij->ji", y)[0].add_(1)
    return y * 2


def _without_gradients(m: _Writer, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        m.state.add_(1)
    return x * m.state


def _statistics(m: Any, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.batch_norm(x, m.mean, m.variance, training=True) + m.mean


@pytest.mark.parametrize(
    "function",
    [
        _over_a_result,
        _over_the_input,
        _over_a_buffer,
        _through_a_composite_view,
        _without_gradients,
        _statistics,
    ],
)
def test_what_a_program_writes_its_rewritten_form_writes(function: Any) -> None:
    """Results, inputs and buffers are eager's call after call; no operator writes any more."""
    module, x = _Writer(function).eval(), torch.randn(2, 3)
    program = torch.export.export(module, (x,), strict=False)
    result, _ = run_passes(program, _PASSES)
    called = [n.target for n in result.graph.nodes if n.op == "call_function"]
    assert not any(getattr(t, "_schema", None) and t._schema.is_mutable for t in called)
    rewritten = copy.deepcopy(result).module()
    for _ in range(2):
        ours, eagers = x.clone(), x.clone()
        torch.testing.assert_close(rewritten(ours), module(eagers))
        torch.testing.assert_close(ours, eagers)
    names = dict(rewritten.named_buffers())
    for name, value in module.named_buffers():
        torch.testing.assert_close(names.get(name, value), value)


def test_a_program_that_no_pass_changes_is_handed_back() -> None:
    """The very same, though it writes."""

    def function(_: _Writer, x: torch.Tensor) -> torch.Tensor:
        return x.exp().add_(1)

    program = torch.export.export(_Writer(function).eval(), (torch.randn(2, 3),), strict=False)
    assert run_passes(program, ["merge_common_subexpressions"])[0] is program
