"""RemoveIdentityPermutes: layout operators that cancel go; by axes, never by sizes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transforms.passes.remove_identity_permutes import RemoveIdentityPermutes

aten = torch.ops.aten


class _Apply(nn.Module):
    """A function of one tensor, between two computations so that no view is an input or output."""

    def __init__(self, function: Any, *, bare: bool = False) -> None:
        super().__init__()
        self.function, self.bare = function, bare

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x) if self.bare else self.function(x.exp()).sin()


def _export(module: nn.Module, x: torch.Tensor, stage: str = "training") -> Any:
    program = torch.export.export(module, (x,), strict=False)
    if stage == "training":
        return program
    return program.run_decompositions({} if stage == "functional" else None)


def _calls(program: Any) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


_NOTHING: dict[str, Any] = {
    "permute": lambda x: x.permute(0, 1, 2),
    "negative axes": lambda x: x.permute(-3, 1, -1),
    "transpose of one axis": lambda x: x.transpose(1, -2),
    "view": lambda x: x.view(3, 3, 3),
    "view with inference": lambda x: x.view(3, -1, 3),
    "reshape": lambda x: x.reshape(3, 3, 3),
    "expand": lambda x: x.expand(3, -1, 3),
    "clone": lambda x: x.clone(),
    "clone of a format": lambda x: x.clone(memory_format=torch.contiguous_format),
    "detach": lambda x: x.detach(),
    "full slice": lambda x: x[:, 0:3],
    "same dtype": lambda x: aten._to_copy(x, dtype=x.dtype),
    "two permutes": lambda x: x.permute(1, 2, 0).permute(2, 0, 1),
    "transpose and permute": lambda x: x.transpose(0, 2).permute(2, 1, 0),
    "three permutes": lambda x: x.permute(1, 2, 0).permute(1, 2, 0).permute(1, 2, 0),
    "a copy between": lambda x: x.permute(0, 2, 1).contiguous().permute(0, 2, 1),
    "view copies": lambda x: aten.permute_copy(aten.permute_copy(x, [1, 0, 2]), [1, 0, 2]),
    "views there and back": lambda x: x.view(9, 3).view(27).unsqueeze(0).view(3, 3, 3),
    "unsqueeze and squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "flatten and unflatten": lambda x: x.flatten(1).unflatten(1, (3, 3)),
    "movedim": lambda x: x.movedim(0, 2).movedim(2, 0),
}


@pytest.mark.parametrize("name", _NOTHING)
def test_what_does_nothing_goes(name: str) -> None:
    """On a cube, where every axis has the same size, only the two computations are left."""
    module, x = _Apply(_NOTHING[name]), torch.randn(3, 3, 3)
    for stage in ("training", "functional"):
        result, record = RemoveIdentityPermutes()(_export(module, x, stage))
        assert _calls(result) == ["aten.exp.default", "aten.sin.default"]
        assert record.modified
        got, expected = result.module()(x), module(x)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


_SOMETHING: dict[str, Any] = {
    "permute of equal sizes": lambda x: x.permute(1, 0, 2),
    "permute, not its inverse": lambda x: x.permute(1, 2, 0).permute(1, 2, 0),
    "reshape between": lambda x: x.permute(1, 2, 0).reshape(3, 9).reshape(3, 3, 3).permute(2, 0, 1),
    "view between permutes": lambda x: x.permute(0, 2, 1).reshape(3, 3, 3).reshape(9, 3),
    "slice of the same size elsewhere": lambda x: torch.cat([x, x])[3:],
    "broadcasting expand": lambda x: x[:1].expand(3, 3, 3),
    "a dtype": lambda x: x.to(torch.float64),
    "a conversion of layout": lambda x: x.permute(0, 2, 1).contiguous() + x,
    "flip": lambda x: x.flip(0),
    "reinterpreted bytes": lambda x: x.view(torch.int32).view(torch.float32) * 2,
}


@pytest.mark.parametrize("name", _SOMETHING)
def test_what_does_something_keeps_its_meaning(name: str) -> None:
    """Whatever of it may go, the numbers are eager's."""
    module, x = _Apply(_SOMETHING[name]), torch.randn(3, 3, 3)
    result, _ = RemoveIdentityPermutes()(_export(module, x))
    torch.testing.assert_close(result.module()(x), module(x), rtol=0, atol=0)


def test_genuine_copies_of_layout_stay() -> None:
    """`contiguous` on a permuted tensor is there for what follows."""
    module = _Apply(lambda x: x.permute(0, 2, 1).contiguous().view(9, 3))
    program = _export(module, torch.randn(3, 3, 3))
    assert RemoveIdentityPermutes()(program)[0] is program


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(list(itertools.permutations(range(3)))), min_size=2, max_size=5),
    st.lists(st.sampled_from(["", "relu", "neg", "clone", "contiguous", "half"]), max_size=5),
)
def test_chains_become_at_most_one_permute(
    orders: list[tuple[int, ...]], between: list[str]
) -> None:
    """Permutes with pointwise calls and copies between them equal eager; views alone become one."""

    def function(x: torch.Tensor) -> torch.Tensor:
        for order, then in itertools.zip_longest(orders, between[: len(orders)], fillvalue=""):
            x = x.permute(order)
            x = getattr(x, then)() if then else x
        return x

    module, x = _Apply(function), torch.randn(2, 2, 2)
    result, _ = RemoveIdentityPermutes()(_export(module, x))
    torch.testing.assert_close(result.module()(x), module(x), rtol=0, atol=0)
    if not any(between[: len(orders)]):
        assert _calls(result).count("aten.permute.default") <= 1
        assert len(_calls(result)) <= 3


def test_permutes_cancel_around_pointwise_calls() -> None:
    """permute, gelu, scale, permute back: the calls run on the source, arguments kept."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.gelu(x.permute(0, 2, 3, 1), approximate="tanh")
        return y.mul(0.5).permute(0, 3, 1, 2)

    module, x = _Apply(function), torch.randn(2, 3, 5, 5)
    for stage in ("training", "functional", "core"):
        result, _ = RemoveIdentityPermutes()(_export(module, x, stage))
        assert not any("permute" in c for c in _calls(result))
        torch.testing.assert_close(result.module()(x), module(x))
        gelu = next(n for n in result.graph.nodes if n.target is aten.gelu.default)
        assert gelu.kwargs == {"approximate": "tanh"}
        assert gelu.meta["val"].stride() == (75, 25, 5, 1)


def test_a_reader_between_the_permutes_has_one_of_its_own() -> None:
    """Where another call reads a pointwise result permuted, that is all that is permuted."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.permute(1, 0).relu()
        return y.permute(1, 0) + y.sum(0)

    module, x = _Apply(function), torch.randn(3, 3)
    result, _ = RemoveIdentityPermutes()(_export(module, x))
    assert sum("permute" in c for c in _calls(result)) == 1
    torch.testing.assert_close(result.module()(x), module(x))


def test_readers_of_every_permuted_result_keep_them() -> None:
    """What would need as many permutations elsewhere is left as it is."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.permute(1, 0).relu()
        return y.sin().sum(0) + y.sum(0)

    program = _export(_Apply(function), torch.randn(3, 3))
    result, _ = RemoveIdentityPermutes()(program)
    assert result is program


def _write_clone(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.add_(1)
    return y + x


def _write_source(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    x.view(-1).add_(1)
    return y + x


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.clone(), "an input"),
        (lambda x: x.t().t(), "an input"),
        (lambda x: x.permute(1, 0).clone().permute(1, 0), "an input"),
    ],
)
def test_refuses_with_a_reason(function: Any, reason: str) -> None:
    """A copy that is returned stays."""
    program = _export(_Apply(function, bare=True), torch.randn(3, 3))
    result, record = RemoveIdentityPermutes()(program)
    assert any(reason in r.reason for r in record.refusals)
    assert sum("clone" in c or "contiguous" in c for c in _calls(result)) == sum(
        "clone" in c or "contiguous" in c for c in _calls(program)
    )


@pytest.mark.parametrize("function", [_write_clone, _write_source])
def test_a_copy_of_what_is_written_keeps_its_numbers(function: Any) -> None:
    """Whichever of the two is written."""
    module, x = _Apply(function), torch.randn(3, 3)
    result, record = RemoveIdentityPermutes()(_export(module, x))
    assert record.modified
    torch.testing.assert_close(result.module()(x), module(x))


def test_views_may_be_bypassed_though_their_memory_is_written() -> None:
    """A view equal to its source is its source, whatever is written."""

    def function(x: torch.Tensor) -> torch.Tensor:
        x.t().t().add_(1)
        y = x.view(3, 3)
        x.mul_(2)
        return y + x

    module, x = _Apply(function), torch.randn(3, 3)
    result, _ = RemoveIdentityPermutes()(_export(module, x))
    assert not any("view" in c or "aten.t." in c for c in _calls(result))
    torch.testing.assert_close(result.module()(x), module(x))


def test_two_outputs_stay_two_tensors() -> None:
    """A returned copy of another output is a tensor of its own."""
    module = _Apply(lambda x: ((y := x * 2), y.clone()), bare=True)
    result, _ = RemoveIdentityPermutes()(_export(module, torch.randn(3, 3)))
    first, second = result.module()(torch.zeros(3, 3))
    first.add_(1)
    torch.testing.assert_close(second, torch.zeros(3, 3))


def test_dynamic_sizes_are_compared_by_symbol() -> None:
    """A view to the same symbolic sizes goes; a swap of two equal axes next to them does not."""

    def function(x: torch.Tensor) -> torch.Tensor:
        same = x.view(x.shape[0], 4).transpose(0, 1).transpose(0, 1)
        return x.view(x.shape[0], 2, 2).transpose(1, 2).reshape(x.shape[0], 4) + same

    module = _Apply(function)
    batch = torch.export.Dim("batch", min=2, max=9)
    program = torch.export.export(
        module, (torch.randn(5, 4),), dynamic_shapes=({0: batch},), strict=False
    ).run_decompositions({})
    result, _ = RemoveIdentityPermutes()(program)
    assert sum("transpose" in c for c in _calls(result)) == 1
    for size in (2, 4, 7):
        x = torch.randn(size, 4)
        torch.testing.assert_close(result.module()(x), module(x))


def test_quantised_graph_comes_through() -> None:
    """Conversions stay where they are, and permutes do not move across them."""
    import torch.ao.quantization.fx._decomposed

    quantised = torch.ops.quantized_decomposed
    scale = (0.1, 0, -128, 127, torch.int8)

    def function(x: torch.Tensor) -> torch.Tensor:
        q = quantised.quantize_per_tensor(x.t(), *scale)
        return quantised.dequantize_per_tensor(q, *scale).t()

    program = _export(_Apply(function), torch.randn(3, 3))
    assert RemoveIdentityPermutes()(program)[0] is program


@pytest.mark.parametrize("rank", [8, 9, 12])
def test_permutes_of_any_rank_cancel(rank: int) -> None:
    """Nine axes and more are axes like others."""
    order = [*range(1, rank), 0]
    back = [rank - 1, *range(rank - 1)]
    program = _export(_Apply(lambda x: x.permute(order).permute(back)), torch.randn([2] * rank))
    rewritten, _ = RemoveIdentityPermutes()(program)
    assert _calls(rewritten) == ["aten.exp.default", "aten.sin.default"]
