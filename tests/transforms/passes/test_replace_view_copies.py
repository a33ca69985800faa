"""ReplaceViewCopies: a view copy becomes a view where that changes nothing, and nowhere else."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch._export.verifier import Verifier

from transforms.passes.replace_view_copies import ReplaceViewCopies

aten = torch.ops.aten

_STAGES = ("training", "functional", "core")


class _Apply(nn.Module):
    """A function of one tensor, with a buffer at hand."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("buffer", torch.arange(24.0).reshape(4, 6))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _export(module: nn.Module, x: torch.Tensor, stage: str = "training") -> Any:
    program = torch.export.export(module.eval(), (x,), strict=False)
    return program if stage == "training" else program.run_decompositions(
        {} if stage == "functional" else None
    )  # fmt: skip


def _copies_left(program: Any) -> list[str]:
    names = [str(getattr(n.target, "_schema", "")) for n in program.graph.nodes]
    return [name for name in names if "_copy(" in name or "_copy." in name]


_FAMILY: dict[str, Any] = {
    "split": lambda x: aten.split_copy(x, 4, 1)[1],
    "split_with_sizes": lambda x: aten.split_with_sizes_copy(x, [1, 3], 0)[1],
    "unbind": lambda x: aten.unbind_copy(x, -1)[2],
    "slice": lambda x: aten.slice_copy(x, 1, 1, 6, 2),
    "select": lambda x: aten.select_copy(x, 0, -1),
    "narrow": lambda x: aten.narrow_copy(x, 1, 2, 3),
    "narrow from the end": lambda x: aten.narrow_copy(x, 1, -2, 2),
    "view": lambda x: aten.view_copy(x, [8, 3]),
    "view as integers": lambda x: aten.view_copy.dtype(x, torch.int32) & 0xFFFF,
    "reshape": lambda x: aten._reshape_copy(x, [2, -1]),
    "permute": lambda x: aten.permute_copy(x, [1, 0]),
    "transpose": lambda x: aten.transpose_copy(x, 0, 1),
    "t": aten.t_copy,
    "expand": lambda x: aten.expand_copy(x, [3, 4, 6]),
    "squeeze": lambda x: aten.squeeze_copy(x[:1]),
    "squeeze.dim": lambda x: aten.squeeze_copy(x[:1], 0),
    "squeeze.dims": lambda x: aten.squeeze_copy(x[:1], [0, 1]),
    "unsqueeze": lambda x: aten.unsqueeze_copy(x, 1),
    "alias": aten.alias_copy,
    "detach": aten.detach_copy,
    "diagonal": lambda x: aten.diagonal_copy(x, 1),
    "unfold": lambda x: aten.unfold_copy(x, 1, 3, 2),
    "as_strided": lambda x: aten.as_strided_copy(x, [3, 3], [1, 2], 4),
    "view_as_complex": lambda x: aten.view_as_complex_copy(x.reshape(12, 2)).abs(),
    "view_as_real": lambda x: aten.view_as_real_copy(torch.complex(x, x)),
}


@pytest.mark.parametrize("name", _FAMILY)
def test_every_member_becomes_a_view(name: str) -> None:
    """A copy between two computations is replaced, and the numbers are eager's."""
    function = _FAMILY[name]
    module = _Apply(lambda _, x: torch.sum(function(x * 2) * 3, 0))
    x = torch.randn(4, 6)
    for stage in _STAGES:
        program = _export(module, x, stage)
        result, record = ReplaceViewCopies()(program)
        assert record.modified == bool(_copies_left(program))  # torch decomposes some to clones
        assert record.modified or stage == "core"
        assert not _copies_left(result)
        assert not record.refusals
        torch.testing.assert_close(result.module()(x), module(x))


def test_strides_of_all_that_follows_are_computed_anew() -> None:
    """What an elementwise call yields on a permuted view is permuted, and its metadata say so."""
    module = _Apply(lambda _, x: torch.relu(aten.permute_copy(x + 1, [1, 0])).sum(0))
    result, _ = ReplaceViewCopies()(_export(module, torch.randn(4, 6)))
    relu = next(n for n in result.graph.nodes if n.target is aten.relu.default)
    assert relu.meta["val"].stride() == (1, 6)


class _Wrapped:
    """What a target of the edge dialect looks like: callable, with a schema and `_op`."""

    def __init__(self, op: Any) -> None:
        self._op, self._schema = op, op._schema
        self.__name__ = self.__qualname__ = op.__name__
        self.__module__ = "edge"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)


class _EdgeVerifier(Verifier):
    """Allows wrapped operators."""

    dialect: ClassVar[str] = "MENAGERIE_TEST_EDGE"

    def allowed_op_types(self) -> tuple[type[Any], ...]:
        return (*super().allowed_op_types(), _Wrapped)


def test_edge_dialect_names_are_recognised() -> None:
    """Operators wrapped as in the edge dialect are replaced by the views of what they wrap."""
    module = _Apply(lambda _, x: sum(aten.split_copy(aten.permute_copy(x * 2, [1, 0]), 3)) * 2)
    x = torch.randn(4, 6)
    program = _export(module, x, "core")
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = _Wrapped(node.target)
    program._verifiers = [_EdgeVerifier]
    result, record = ReplaceViewCopies()(program)
    assert len(record.changes) == 2
    assert not _copies_left(result)
    torch.testing.assert_close(result.module()(x), module(x))


def _write_base(_: Any, x: torch.Tensor) -> torch.Tensor:
    base = x * 2
    copy = aten.slice_copy(base, 0, 1, 3)
    base.add_(1)
    return copy + base[:2]


def _write_copy(_: Any, x: torch.Tensor) -> torch.Tensor:
    base = x * 2
    copy = aten.alias_copy(base)
    copy.add_(1)
    return copy + base


def _write_piece(_: Any, x: torch.Tensor) -> torch.Tensor:
    base = x * 2
    pieces = aten.split_copy(base, 2)
    pieces[0].view(-1)[2:5].mul_(3)
    return pieces[0] + pieces[1] + base[:2]


def _write_beneath_a_view(_: Any, x: torch.Tensor) -> torch.Tensor:
    base = x * 2
    copy = aten.permute_copy(base.view(6, 4), [1, 0])
    base.view(-1).select(0, 3).fill_(7)
    return copy * 2 + base


def _write_through_undeclared_view(_: Any, x: torch.Tensor) -> torch.Tensor:
    base = x * 2
    copy = aten.alias_copy(base)
    torch.einsum("ij->ji", copy).add_(1)
    return copy + base


def _write_buffer(module: Any, x: torch.Tensor) -> torch.Tensor:
    copy = aten.view_copy(module.buffer, [6, 4])
    module.buffer.add_(1)
    return copy.t() + x


def _return_view_of_input(_: Any, x: torch.Tensor) -> torch.Tensor:
    return aten.view_copy(x, [24])


def _return_view_of_buffer(module: Any, x: torch.Tensor) -> Any:
    return aten.select_copy(module.buffer, 0, 1), x * 2


def _return_two(_: Any, x: torch.Tensor) -> Any:
    base = x * 2
    return base, aten.view_copy(base, [24])


def _return_pieces(_: Any, x: torch.Tensor) -> Any:
    return tuple(aten.split_copy(x * 2, 2))


def _return_permuted(_: Any, x: torch.Tensor) -> torch.Tensor:
    return aten.permute_copy(x * 2, [1, 0])


def _view_downstream(_: Any, x: torch.Tensor) -> torch.Tensor:
    return aten.permute_copy(x * 2, [1, 0]).view(-1) * 2


def _as_strided_downstream(_: Any, x: torch.Tensor) -> torch.Tensor:
    return aten.permute_copy(x * 2, [1, 0]).as_strided([4, 6], [1, 4]) * 2


def _not_viewable(_: Any, x: torch.Tensor) -> torch.Tensor:
    return aten.view_copy((x * 2).t(), [24]) * 2


def _random_downstream(_: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(aten.permute_copy(x * 2, [1, 0])) * 2


def _conjugate(_: Any, x: torch.Tensor) -> torch.Tensor:
    return aten._conj_copy(torch.complex(x, x)).imag * 2


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_return_view_of_input, "an input or a weight"),
        (_return_view_of_buffer, "an input or a weight"),
        (_return_two, "another output"),
        (_return_pieces, "share memory"),
        (_return_permuted, "laid out otherwise"),
        (_view_downstream, "view cannot take the layout"),
        (_as_strided_downstream, "depends on the strides"),
        (_not_viewable, "cannot take the layout"),
        (_random_downstream, "random"),
        (_conjugate, "conjugated"),
    ],
)
def test_refuses_with_a_reason(function: Any, reason: str) -> None:
    """Where a view would differ from the copy, the copy stays; the program is handed back."""
    module = _Apply(function)
    program = _export(module, torch.randn(4, 6))
    result, record = ReplaceViewCopies()(program)
    assert result is program
    assert reason in record.refusals[0].reason


@pytest.mark.parametrize(
    "function",
    [
        _write_base,
        _write_copy,
        _write_piece,
        _write_beneath_a_view,
        _write_through_undeclared_view,
        _write_buffer,
    ],
)
def test_what_is_written_keeps_its_numbers(function: Any) -> None:
    """Whether the copy or what it was taken of, in two calls."""
    module, x = _Apply(function), torch.randn(4, 6)
    program = _export(module, x)
    result = copy.deepcopy(ReplaceViewCopies()(program)[0]).module()
    for _ in range(2):
        torch.testing.assert_close(result(x), module(x))


def test_a_write_before_the_copy_does_no_harm() -> None:
    """Memory written before the copy is taken and never after holds what the copy held."""

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        base = (x * 2).relu_()
        return aten.slice_copy(base, 0, 1, 3) + 1

    module, x = _Apply(function), torch.randn(4, 6)
    result, _ = ReplaceViewCopies()(_export(module, x))
    assert not _copies_left(result)
    torch.testing.assert_close(result.module()(x), module(x))


def test_a_chain_of_copies_is_judged_as_the_views_it_became() -> None:
    """Two copies in a row become views of one memory, though the second's is written."""

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        first = aten.permute_copy(x * 2, [1, 0])
        second = aten.alias_copy(first)
        second.add_(1)
        return first + second

    module, x = _Apply(function), torch.randn(4, 6)
    result, record = ReplaceViewCopies()(_export(module, x))
    assert not _copies_left(result)
    assert not record.refusals
    torch.testing.assert_close(result.module()(x), module(x))


def test_custom_operator_keeps_the_strides_it_was_given() -> None:
    """An operator that torch does not know may rely on dense operands."""

    @torch.library.custom_op("menagerie_test::dense_sum", mutates_args=())
    def dense_sum(x: torch.Tensor) -> torch.Tensor:
        return x.sum() if x.is_contiguous() else x.sum() * 0

    @dense_sum.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(())

    module = _Apply(lambda _, x: dense_sum(aten.permute_copy(x * 2, [1, 0])))
    program = _export(module, torch.randn(4, 6))
    result, record = ReplaceViewCopies()(program)
    assert result is program
    assert "custom operator" in record.refusals[0].reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dynamic_dimensions_stay_dynamic(dtype: torch.dtype) -> None:
    """Views over a symbolic batch are made without pinning it."""
    module = _Apply(lambda _, x: sum(aten.split_copy(aten.transpose_copy(x * 2, 0, 1), 3)) + 1)
    batch = torch.export.Dim("batch", min=2, max=9)
    example = torch.randn(3, 6).to(dtype)
    program = torch.export.export(module, (example,), dynamic_shapes=(({0: batch}),), strict=False)
    result, _ = ReplaceViewCopies()(program.run_decompositions({}))
    assert not _copies_left(result)
    for size in (2, 5, 9):
        x = torch.randn(size, 6).to(dtype)
        torch.testing.assert_close(result.module()(x), module(x))


def test_quantised_graph_comes_through() -> None:
    """Conversions stay where they are; a copy between them becomes a view."""
    import torch.ao.quantization.fx._decomposed

    quantised = torch.ops.quantized_decomposed

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        q = quantised.quantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8)
        q = aten.view_copy(q, [6, 4])
        return quantised.dequantize_per_tensor(q, 0.1, 3, -128, 127, torch.int8) + 1

    module, x = _Apply(function), torch.randn(4, 6)
    program = _export(module, x, "functional")
    result, _ = ReplaceViewCopies()(program)
    before, after = ([str(n.target) for n in p.graph.nodes if "quantize" in str(n.target)]
                     for p in (program, result))  # fmt: skip
    assert before == after
    torch.testing.assert_close(result.module()(x), module(x))
