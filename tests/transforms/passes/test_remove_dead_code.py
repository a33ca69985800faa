"""RemoveDeadCode: what is not read goes, what has an effect stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from transforms.passes.remove_dead_code import RemoveDeadCode

aten = torch.ops.aten


class _Model(nn.Module):
    """A used weight, an unused one, a buffer, and a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.used = nn.Parameter(torch.randn(4))
        self.unused = nn.Parameter(torch.randn(4))
        self.register_buffer("buffer", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _export(function: Any, stage: str = "training") -> Any:
    program = torch.export.export(_Model(function).eval(), (torch.randn(4),), strict=False)
    return program if stage == "training" else program.run_decompositions({})


def _calls(program: Any) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


def _dead_write(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.view(2, 2).add_(1)
    return x + m.used


def _dead_write_after_the_last_reader(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.used
    z = y + 1
    y.mul_(3)
    return z


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda m, x: (m.unused.exp(), x + m.used)[1], ["aten.add.Tensor"]),
        (_dead_write, ["aten.add.Tensor"]),
        (_dead_write_after_the_last_reader, ["aten.mul.Tensor", "aten.add.Tensor"]),
    ],
)
def test_removes_calls_and_their_weights(function: Any, left: list[str]) -> None:
    """Dead calls go, dead writes to memory of the program's own too, then weights without use."""
    program = _export(function)
    result, record = RemoveDeadCode()(program)
    assert _calls(result) == left
    assert set(result.state_dict) == {"used"}
    assert record.modified
    x = torch.randn(4)
    torch.testing.assert_close(result.module()(x), program.module()(x))


def _write_input(m: Any, x: torch.Tensor) -> torch.Tensor:
    x.view(2, 2)[0].add_(1)
    return m.used * 2


def _write_buffer(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.buffer.add_(1)
    return x + m.used


def _write_read_through_another_view(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.used
    view = y.view(2, 2)
    y.add_(1)
    return view * 2


def _random(m: Any, x: torch.Tensor) -> torch.Tensor:
    torch.rand(4)
    return x + m.used * torch.rand(4)


def _assertion(m: Any, x: torch.Tensor) -> torch.Tensor:
    torch._assert_async((x < 100).all())
    return x + m.used


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (_write_input, "aten.add"),
        (_write_buffer, "aten.add"),
        (_write_read_through_another_view, "aten.add"),
        (_random, "rand"),
        (_assertion, "_assert_async"),
    ],
)
def test_keeps_what_has_an_effect(function: Any, kept: str) -> None:
    """Writes that are seen elsewhere, random draws and assertions are never dead."""
    program = _export(function)
    result, _ = RemoveDeadCode()(program)
    assert len([c for c in _calls(result) if kept in c]) == len(
        [c for c in _calls(program) if kept in c]
    )
    x = torch.randn(4)
    given, expected = x.clone(), x.clone()
    torch.manual_seed(0)
    wanted = program.module()(expected)
    torch.manual_seed(0)
    torch.testing.assert_close(result.module()(given), wanted)
    torch.testing.assert_close(given, expected)


def test_nothing_dead_changes_nothing() -> None:
    """A program without dead code and unused weights is handed back as it is."""
    program = _export(lambda m, x: x + m.used + m.unused + m.buffer, "functional")
    assert RemoveDeadCode()(program)[0] is program


def test_mutated_buffer_stays_in_the_functional_form() -> None:
    """A buffer update is an output; it is live without a reader."""
    program = _export(_write_buffer, "functional")
    result, _ = RemoveDeadCode()(program)
    assert result.graph_signature.buffers_to_mutate
    module = result.module()
    for _ in range(2):
        module(torch.randn(4))
    torch.testing.assert_close(module.buffer, torch.full((4,), 2.0))


def test_quantised_graph_comes_through() -> None:
    """Live conversions all stay."""
    import torch.ao.quantization.fx._decomposed

    quantised = torch.ops.quantized_decomposed
    scale = (0.1, 0, -128, 127, torch.int8)

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = quantised.dequantize_per_tensor(quantised.quantize_per_tensor(x, *scale), *scale)
        return y + m.used + m.unused + m.buffer

    program = _export(function)
    assert RemoveDeadCode()(program)[0] is program
