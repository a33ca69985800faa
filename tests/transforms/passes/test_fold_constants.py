"""FoldConstants: what depends on weights alone is computed once, within bounds."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.pieces import Apply, assert_as_eager
from transforms import convert
from transforms.passes.fold_constants import FoldConstants

if TYPE_CHECKING:
    from pathlib import Path

aten = torch.ops.aten


class _Model(nn.Module):
    """A weight, a buffer and a function of both and the input."""

    def __init__(self, function: Any, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(4, 6).to(dtype), requires_grad=False)
        self.register_buffer("buffer", torch.randn(6).to(dtype))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _export(module: nn.Module, x: torch.Tensor, stage: str = "functional") -> Any:
    program = torch.export.export(module.eval(), (x,), strict=False)
    if stage == "training":
        return program
    return program.run_decompositions({} if stage == "functional" else None)


def _calls(program: Any) -> list[Any]:
    return [n.target for n in program.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("stage", ["training", "functional", "core"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_subgraph_of_weights_becomes_one_constant(stage: str, dtype: torch.dtype) -> None:
    """The weights are replaced by what was made of them, bit for bit as eager makes it."""
    module = _Model(lambda m, x: x + torch.softmax(m.weight * 2 + m.buffer, -1), dtype)
    x = torch.randn(4, 6).to(dtype)
    result, record = FoldConstants()(_export(module, x, stage))
    assert _calls(result) == [aten.add.Tensor]
    assert len(result.state_dict) == 1
    assert record.modified
    torch.testing.assert_close(result.module()(x), module(x), rtol=0, atol=0)


def test_views_of_weights_are_left_and_what_is_beneath_them_is_folded() -> None:
    """A permuted constant costs nothing: the permute stays, the computation under it goes."""
    module = _Model(lambda m, x: x + torch.relu(m.weight).t())
    x = torch.randn(6, 4)
    result, _ = FoldConstants()(_export(module, x))
    assert [str(t) for t in _calls(result)] == ["aten.t.default", "aten.add.Tensor"]
    torch.testing.assert_close(result.module()(x), module(x))


def test_views_alone_fold_nothing() -> None:
    """Nothing is computed by a transposed weight."""
    program = _export(_Model(lambda m, x: x @ m.weight.t()), torch.randn(2, 6))
    assert FoldConstants()(program)[0] is program


def test_constructors_alone_fold_nothing() -> None:
    """A filled tensor is made faster than it is read; what is computed of it is folded."""
    program = _export(_Model(lambda _, x: x + torch.ones(6)), torch.randn(2, 6))
    assert FoldConstants()(program)[0] is program
    module = _Model(lambda _, x: x + torch.sin(torch.arange(6) * 0.5))
    result, _ = FoldConstants()(_export(module, torch.randn(2, 6)))
    assert _calls(result) == [aten.add.Tensor]
    x = torch.randn(2, 6)
    torch.testing.assert_close(result.module()(x), module(x))


def _shifted(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A mask as shifted windows have it, written part by part into what is made like the input."""
    parts, mask = (slice(0, 4), slice(4, 6), slice(6, 8)), x.new_zeros(8, 8)
    for number, (rows, columns) in enumerate(itertools.product(parts, parts)):
        mask[rows, columns] = number
    windows = mask.view(2, 4, 2, 4).permute(0, 2, 1, 3).reshape(4, 16)
    apart = windows[:, None] - windows[..., None]
    return x + apart.masked_fill(apart != 0, -100.0)


def test_a_mask_of_fixed_size_is_computed_once() -> None:
    """Of the input it takes no more than dtype and device."""
    module, x = _Model(_shifted), torch.randn(3, 4, 16, 16)
    result, _ = FoldConstants()(_export(module, x, "training"))
    assert _calls(result) == [aten.add.Tensor]
    torch.testing.assert_close(result.module()(x), module(x), rtol=0, atol=0)


def test_size_bound_keeps_a_broadcast_out_of_the_artifact() -> None:
    """What would grow the artifact is refused with the growth; what it is made of is folded."""
    module = _Model(lambda m, x: x + torch.exp(m.buffer).repeat(1000, 1))
    x = torch.randn(1000, 6)
    program = _export(module, x)
    result, record = FoldConstants(max_growth=1000)(program)
    assert "would grow by 23976 bytes" in record.refusals[0].reason  # 24000 for the 24 of buffer
    assert aten.exp.default not in _calls(result)
    assert aten.repeat.default in _calls(result)
    torch.testing.assert_close(result.module()(x), module(x))
    bold, _ = FoldConstants(max_growth=24_000)(program)
    assert _calls(bold) == [aten.add.Tensor]


def test_growth_counts_over_the_whole_program() -> None:
    """Two results that each fit the bound do not fit it together when the weight must stay."""
    module = _Model(lambda m, x: (x + m.weight, x * m.weight.exp(), x * m.weight.sin()))
    _, record = FoldConstants(max_growth=100)(_export(module, torch.randn(4, 6)))
    assert len(record.changes) == 1
    assert len(record.refusals) == 1


def test_replaced_weights_do_not_count_as_growth() -> None:
    """A result as large as the weight that only it reads is free."""
    module = _Model(lambda m, x: x + m.weight.exp())
    _, record = FoldConstants(max_growth=0)(_export(module, torch.randn(4, 6)))
    assert len(record.changes) == 1


def test_what_is_written_begins_with_the_constant() -> None:
    """In each call, and not with what the call before left."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.weight * 2
        y[0].add_(x)
        return (y + 1) * x

    module = _Model(function)
    result, record = FoldConstants()(_export(module, torch.randn(6), "training"))
    assert record.modified
    for _ in range(2):
        x = torch.randn(6)
        torch.testing.assert_close(result.module()(x), module(x))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda m, x: (m.weight * 2, x + 1), "returned"),
        (lambda m, x: ((m.weight * 2).view(-1)[:3], x + 1), "returned"),
    ],
)
def test_refuses_with_a_reason(function: Any, reason: str) -> None:
    """A constant that a call could change, or a caller, would be wrong the next time."""
    program = _export(_Model(function), torch.randn(6), "training")
    result, record = FoldConstants()(program)
    assert result is program
    assert reason in record.refusals[0].reason


@pytest.mark.parametrize("stage", ["training", "functional"])
def test_mutated_buffers_are_no_constants(stage: str) -> None:
    """What is made of a buffer that changes from call to call is computed on every call."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        before = m.buffer * 2
        m.buffer.view(2, 3)[0].add_(1)
        return x + before + m.buffer.exp()

    torch.manual_seed(0)
    eager = _Model(function)
    torch.manual_seed(0)
    program = _export(_Model(function), torch.randn(6), stage)
    result, _ = FoldConstants()(program)
    assert result is program
    module, x = result.module(), torch.randn(6)
    for _ in range(3):
        torch.testing.assert_close(module(x), eager(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x + torch.rand_like(m.weight),
        lambda m, x: x + nn.functional.dropout(m.weight, 0.5, training=True),
        lambda m, x: x + torch.bernoulli(m.weight.abs().clamp(max=1)),
        lambda m, x: x + torch.empty_like(m.weight).fill_(2),
    ],
)
def test_random_and_uninitialised_values_stay(function: Any) -> None:
    """A random number is drawn on every call."""
    result, _ = FoldConstants()(_export(_Model(function), torch.randn(4, 6)))
    wanted = {"rand_like", "dropout", "bernoulli", "empty_like", "fill"}
    assert any(name in str(t) for t in _calls(result) for name in wanted)


def test_stored_constants_are_contiguous_where_strides_do_not_matter() -> None:
    """The weights file knows no strides; what follows is given the new ones."""
    module = _Model(lambda m, x: torch.relu(m.weight.t() * 2) + x)
    x = torch.randn(6, 4)
    result, _ = FoldConstants()(_export(module, x))
    assert all(v.is_contiguous() for v in result.state_dict.values())
    add = next(n for n in result.graph.nodes if n.target is aten.add.Tensor)
    assert add.meta["val"].stride() == (4, 1)
    torch.testing.assert_close(result.module()(x), module(x))


def test_a_consumer_that_relies_on_strides_keeps_the_computation() -> None:
    """as_strided on a permuted result reads other elements of a contiguous one."""
    module = _Model(lambda m, x: x + (m.weight.t() * 2).as_strided([4], [1]))
    program = _export(module, torch.randn(4))
    result, record = FoldConstants()(program)
    assert result is program
    assert "strides" in record.refusals[0].reason


def test_dequantised_weights_stay_quantised() -> None:
    """Folding would store four bytes where one does, and hide the layer from a backend."""
    import torch.ao.quantization.fx._decomposed

    quantised = torch.ops.quantized_decomposed

    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randint(-9, 9, (4, 6), dtype=torch.int8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = quantised.dequantize_per_tensor(self.weight, 0.1, 0, -128, 127, torch.int8)
            return nn.functional.linear(x, weight)

    program = _export(Quantised(), torch.randn(2, 6))
    assert FoldConstants()(program)[0] is program


def test_dynamic_sizes_are_not_constants() -> None:
    """A mask of the input's own length is made for each call."""
    module = _Model(lambda m, x: x + torch.arange(x.shape[0])[:, None] * m.buffer.exp())
    length = torch.export.Dim("length", min=2, max=9)
    program = torch.export.export(
        module, (torch.randn(4, 6),), dynamic_shapes=({0: length},), strict=False
    ).run_decompositions({})
    result, _ = FoldConstants()(program)
    assert aten.exp.default not in _calls(result)
    for size in (2, 7):
        x = torch.randn(size, 6)
        torch.testing.assert_close(result.module()(x), module(x))


class _Levels(nn.Module):
    """Numbers beside levels that are fractions."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(n,) becomes the number of its level in each of three rows."""
        rows = torch.linspace(0.1, 50, 701), torch.arange(0, 100, 0.3), torch.arange(-1, 1, 0.05)
        return tuple(torch.bucketize(x, row) for row in rows)


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_fractions_are_rounded_as_eager_rounds_them(target: str, tmp_path: Path) -> None:
    """A number that is a level is on its right side; kernels round some levels otherwise."""
    out, x = tmp_path / "out", torch.linspace(0.1, 50, 701)
    convert(_Levels(), (torch.randn(701),), target=target, out=out, measure_seconds=0)
    assert_as_eager(out, _Levels(), (x,))


def test_windows_that_a_call_makes_are_stored(tmp_path: Path) -> None:
    """No runtime makes them: they depend on no input."""
    makers = torch.hamming_window, torch.blackman_window, torch.bartlett_window, torch.kaiser_window
    module = Apply(lambda x: [x * make(16) for make in makers])
    convert(module, (torch.randn(3, 16),), out=tmp_path / "out", measure_seconds=0)
    assert_as_eager(tmp_path / "out", module, (torch.ones(3, 16),))
