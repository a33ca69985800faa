"""FuseCatLinear: equal to eager wherever it parts a linear, and shut where it must not or loses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from transforms.passes.fuse_cat_linear import FuseCatLinear, Shape, denial
from zoo.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten

_ROWS = 40000  # many enough for the gate
_DIALECTS = ("training", "core")
_SWEEP = Path(__file__).parents[3] / "benchmarks" / "fuse_cat_linear.md"


class _Joined(nn.Module):
    """A linear from `width` to 8 features, and a function of it and the inputs."""

    def __init__(self, width: int, body: Callable[..., Any], features: int = 8) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(width, features)
        self.body = body

    def forward(self, *parts: torch.Tensor) -> Any:
        return self.body(self, *parts)


def _join(m: Any, *parts: torch.Tensor) -> torch.Tensor:
    return m.linear(torch.cat(parts, -1))


def _export(module: nn.Module, inputs: Any, dialect: str = "training", dynamic: Any = None) -> Any:
    shapes = None if dynamic is None else (tuple(dynamic for _ in inputs),)
    program = torch.export.export(module.eval(), inputs, dynamic_shapes=shapes, strict=False)
    return program if dialect == "training" else program.run_decompositions()


def _count(program: Any, part: str) -> int:
    return sum(part in str(n.target) for n in program.graph.nodes if n.op == "call_function")


def _parts(*widths: int, lead: tuple[int, ...] = (3,)) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*lead, width, generator=draw) for width in widths)


@settings(max_examples=12, deadline=None)
@given(
    widths=st.lists(st.sampled_from([1, 2, 4, 4, 8]), min_size=2, max_size=4),
    lead=st.lists(st.sampled_from([1, 4, 4]), max_size=3),
    bias=st.booleans(),
    negative=st.booleans(),
    core=st.booleans(),
    form=st.sampled_from(["linear", "mm", "addmm"]),
)
@example(widths=[1, 1], lead=[], bias=False, negative=False, core=True, form="linear")
@example(widths=[2, 1], lead=[], bias=True, negative=True, core=True, form="linear")
def test_parted_linear_equals_eager(
    widths: list[int], lead: list[int], bias: bool, negative: bool, core: bool, form: str
) -> None:
    """Any widths, ranks and spellings, equal sizes on purpose: no cat is left, numbers stay."""
    lead = lead[:1] if form == "addmm" else lead
    lead = lead or ([4] if form != "linear" else [])

    def body(m: Any, *parts: torch.Tensor) -> torch.Tensor:
        x = torch.cat(parts, -1 if negative else len(lead))
        if form == "linear":
            return F.linear(x, m.linear.weight, m.linear.bias if bias else None)
        weight = m.linear.weight.t()
        product = torch.addmm(m.linear.bias, x, weight, alpha=2) if form == "addmm" else x @ weight
        return product.relu()

    module, inputs = _Joined(sum(widths), body), _parts(*widths, lead=tuple(lead))
    program = _export(module, inputs, "core" if core else "training")
    result, record = FuseCatLinear(gate="open")(program)
    torch.testing.assert_close(result.module()(*inputs), module(*inputs), rtol=1e-4, atol=1e-5)
    assert record.modified
    assert _count(result, "cat") == 0
    assert _count(result, "linear") == len(widths)


@pytest.mark.parametrize("dialect", _DIALECTS)
def test_three_parts_with_the_bias_once(dialect: str) -> None:
    """Cat of three: three linears, two additions, and the bias in the first alone."""
    module, inputs = _Joined(12, _join), _parts(4, 4, 4)
    result, _ = FuseCatLinear(gate="open")(_export(module, inputs, dialect))
    linears = [n for n in result.graph.nodes if n.target is aten.linear.default]
    assert [len(n.all_input_nodes) for n in linears] == [3, 2, 2]
    assert _count(result, "add.Tensor") == 2
    torch.testing.assert_close(result.module()(*inputs), module(*inputs))


def test_rows_stay_dynamic() -> None:
    """Batch and sequence may be symbols, also behind the view of core ATen; none is specialised."""
    batch, length = torch.export.Dim("b", max=64), torch.export.Dim("t", max=64)
    module, inputs = _Joined(10, _join), _parts(4, 6, lead=(3, 5))
    for dialect in _DIALECTS:
        program = _export(module, inputs, dialect, {0: batch, 1: length})
        result, record = FuseCatLinear(gate="open")(program)
        assert record.modified
        assert result.range_constraints == program.range_constraints
        for lead in ((1, 1), (2, 64), (7, 3)):
            parts = _parts(4, 6, lead=lead)
            torch.testing.assert_close(result.module()(*parts), module(*parts))


def test_bfloat16_stays_bfloat16() -> None:
    """The parts are rounded before they are added: within bfloat16's own error of eager."""
    module = _Joined(96, _join).to(torch.bfloat16)
    inputs = tuple(t.to(torch.bfloat16) for t in _parts(32, 64))
    result, record = FuseCatLinear(gate="open")(_export(module, inputs))
    assert record.modified
    assert result.module()(*inputs).dtype is torch.bfloat16
    torch.testing.assert_close(result.module()(*inputs), module(*inputs), rtol=2e-2, atol=2e-2)


def test_weights_are_cut_at_compile_time() -> None:
    """The program carries the parts of the weight, and nothing is sliced at run time."""
    module, inputs = _Joined(10, _join), _parts(4, 6)
    result, _ = FuseCatLinear(gate="open")(_export(module, inputs))
    shapes = {name: tuple(value.shape) for name, value in result.state_dict.items()}
    assert shapes == {
        "linear.weight_part_0": (8, 4),
        "linear.weight_part_1": (8, 6),
        "linear.weight_part_bias": (8,),
    }
    assert all(value.is_contiguous() for value in result.state_dict.values())


def test_a_shared_weight_stays_whole_for_its_other_user() -> None:
    """Cutting the weight makes new constants; other readers find it as it was."""
    module = _Joined(8, lambda m, a, b: (_join(m, a, b), m.linear.weight * 2))
    inputs = _parts(4, 4)
    result, _ = FuseCatLinear(gate="open")(_export(module, inputs))
    torch.testing.assert_close(result.module()(*inputs), module(*inputs))


def _two_users(m: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = torch.cat((a, b), -1)
    return m.linear(x) + x.sum(-1, keepdim=True)


def test_a_part_is_read_as_it_was_joined() -> None:
    """Whatever is written over it between the concatenation and the linear."""

    def written(m: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a = a * 1
        x = torch.cat((a, b), -1)
        a.add_(1)
        return m.linear(x)

    module, inputs = _Joined(8, written), _parts(4, 4)
    result, record = FuseCatLinear(gate="open")(_export(module, inputs))
    assert record.modified
    torch.testing.assert_close(result.module()(*inputs), module(*inputs))


_WRONG: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "wrong axis": (lambda m, a, b: m.linear(torch.cat((a, b), 0)), ((3, 8), (2, 8)), "last axis"),
    "wrong axis of a square": (
        lambda m, a, b: m.linear(torch.cat((a, b), 0)), ((4, 8), (4, 8)), "last axis",
    ),
    "other users": (_two_users, ((3, 4), (3, 4)), "other users"),
    "promoted": (
        lambda m, a, b: m.linear(torch.cat((a, b.to(torch.bfloat16)), -1)),
        ((3, 4), (3, 4)),
        "one dtype",
    ),
    "empty of another rank": (
        lambda m, a, b: m.linear(torch.cat((a, b, a.new_zeros(0)), -1)),
        ((3, 4), (3, 4)),
        "leading shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", _WRONG)
def test_refuses_with_a_reason_and_changes_nothing(case: str) -> None:
    """Where parting would be wrong even an open gate changes nothing, and the reason is given."""
    body, shapes, reason = _WRONG[case]
    module, inputs = _Joined(8, body), tuple(torch.randn(shape) for shape in shapes)
    program = _export(module, inputs)
    result, record = FuseCatLinear(gate="open")(program)
    assert result is program
    assert reason in record.refusals[0].reason
    torch.testing.assert_close(result.module()(*inputs), module(*inputs))


def test_mismatched_leading_shapes_never_arise_in_a_legal_graph() -> None:
    """Eager and export refuse such a cat themselves: nothing reaches the pass."""
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        _Joined(8, _join)(torch.randn(3, 4), torch.randn(2, 4))


_DENIED: dict[str, tuple[tuple[int, ...], dict[str, Any], str]] = {
    "too many": ((64,) * 5, {}, "parts"),
    "too narrow": ((64, 4), {}, "narrow"),
    "too wide": ((4096, 4096), {}, "wide"),
    "few rows": ((64, 64), {"rows": 16}, "caches"),
    "many features": ((64, 64), {"features": 4096}, "promises"),
    "dynamic rows": ((64, 64), {"dynamic": True}, "caches"),
}


@pytest.mark.parametrize("case", _DENIED)
def test_gate_stays_shut_where_it_would_not_pay(case: str) -> None:
    """Every limit of the cost model is a refusal with its figure, and nothing changes."""
    widths, more, reason = _DENIED[case]
    module = _Joined(sum(widths), _join, more.get("features", 8))
    inputs = tuple(torch.empty(more.get("rows", _ROWS), width) for width in widths)
    dynamic = {0: torch.export.Dim("rows", max=10**6)} if "dynamic" in more else None
    program = _export(module, inputs, dynamic=dynamic)
    result, record = FuseCatLinear()(program)
    assert result is program
    assert reason in record.refusals[0].reason


# What ROCm/pytorch #3233 was written for: two or three feature blocks of many rows, bfloat16 among
# them, at most 384 columns in all, whose rows may be cut from something wider.
_BLOCKS: dict[str, tuple[tuple[int, ...], int, torch.dtype, bool]] = {
    "two halves": ((64, 64), 64, torch.bfloat16, False),
    "three blocks": ((128, 128, 128), 128, torch.bfloat16, False),
    "narrow beside wide": ((256, 8), 32, torch.float32, False),
    "cut from one tensor": ((64, 32, 32), 96, torch.float32, True),
}


@pytest.mark.parametrize("case", _BLOCKS)
def test_open_gate_fuses_what_the_measured_one_refuses(case: str) -> None:
    """Large batches of feature blocks: parted if asked, refused with a reason if not."""
    widths, features, dtype, cut = _BLOCKS[case]
    rows, draw = 4096, torch.Generator().manual_seed(0)
    whole = torch.randn(rows, sum(widths), generator=draw).to(dtype)
    parts = whole.split(widths, -1) if cut else [p.contiguous() for p in whole.split(widths, -1)]
    module = _Joined(sum(widths), _join, features).to(dtype)
    batch = {0: torch.export.Dim("rows", max=2**20)}
    program = _export(module, tuple(parts), dynamic=batch)
    shut, refused = FuseCatLinear()(program)
    assert shut is program
    assert len(refused.refusals) == 1
    result, record = FuseCatLinear(gate="open")(program)
    assert len(record.changes) == 1
    assert (_count(result, "cat"), _count(result, "linear")) == (0, len(widths))
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(result.module()(*parts), module(*parts), **tolerance)


def test_a_gate_that_does_not_exist_is_named() -> None:
    """The message says which there are."""
    with pytest.raises(UsageError, match=r"no gate 'ajar'.*measured, open"):
        FuseCatLinear(gate="ajar")


def test_gate_stays_shut_for_parts_that_are_computed_elementwise() -> None:
    """The compiler writes an elementwise result straight into the cat: there is no copy to save."""
    module = _Joined(128, lambda m, a, b: m.linear(torch.cat((a, b * 2), -1)))
    inputs = (torch.empty(_ROWS, 64), torch.empty(_ROWS, 64))
    _, record = FuseCatLinear()(_export(module, inputs))
    assert not record.modified
    assert "elementwise" in record.refusals[0].reason


def test_gate_opens_for_many_rows_and_few_features() -> None:
    """Where the cat is most of the work the default gate lets the rewrite through."""
    program = _export(_Joined(128, _join), (torch.empty(_ROWS, 64), torch.empty(_ROWS, 64)))
    _, record = FuseCatLinear()(program)
    assert record.modified


def test_gate_is_open_only_where_the_sweep_gained() -> None:
    """Shapes of the documented sweep: none is let through that gained less than 1.15x."""
    rows = [line.split("|")[1:-1] for line in _SWEEP.read_text().splitlines() if "x" in line[:20]]
    figures = [[cell.strip() for cell in row] for row in rows if len(row) == 6]
    assert len(figures) > 20
    for count, parts, features, _, measured, verdict in figures:
        width, number = map(int, parts.split(" x "))
        shape = Shape(int(count), (width,) * number, int(features), 4)
        assert verdict == ("shut" if denial(shape) else "open")
        assert verdict == "shut" or float(measured) >= 1.15


def test_quantised_linear_comes_through_unharmed() -> None:
    """A weight that is dequantised in the graph is no constant: nothing is matched."""
    import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed

    q = torch.ops.quantized_decomposed

    def body(m: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        w = q.quantize_per_tensor.default(m.linear.weight, 0.05, 0, -128, 127, torch.int8)
        w = q.dequantize_per_tensor.default(w, 0.05, 0, -128, 127, torch.int8)
        return F.relu(F.linear(torch.cat((a, b), -1), w))

    program = _export(_Joined(8, body), _parts(4, 4))
    result, _ = FuseCatLinear(gate="open")(program)
    assert result is program
