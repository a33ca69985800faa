"""PointwiseAffineToConv: no transposition left where all axes are known, untouched elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transforms.passes.pointwise_affine_to_conv import PointwiseAffineToConv

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten

_MOVES = ("permute", "transpose", "swapaxes", "movedim", "aten.t.", "clone", "contiguous")
_DIALECTS = ("training", "core")


def _export(module: nn.Module, x: torch.Tensor, dialect: str, dynamic: Any = None) -> Any:
    shapes = None if dynamic is None else (dynamic,)
    program = torch.export.export(module.eval(), (x,), dynamic_shapes=shapes, strict=False)
    if dialect == "training":
        return program
    return program.run_decompositions({} if dialect == "functional" else None)


def _moves(program: Any) -> list[str]:
    nodes = [n for n in program.graph.nodes if n.op == "call_function"]
    return [n.name for n in nodes if any(move in str(n.target) for move in _MOVES)]


def _calls(program: Any, part: str) -> int:
    nodes = [n for n in program.graph.nodes if n.op == "call_function"]
    return sum(part in str(n.target) for n in nodes)


class _Chain(nn.Module):
    """Layers with weights of 6 to 6 features, and a function of them and the input."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], Any], features: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(features, features), nn.Linear(features, features)
        self.bare = nn.Linear(features, features, bias=False)
        self.norm = nn.LayerNorm(features)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)
        self.vector = nn.Parameter(torch.randn(features))
        self.square = nn.Parameter(torch.randn(features, features))
        self.body = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self, x)


def _run(body: Callable[[Any, torch.Tensor], Any], x: torch.Tensor, dialect: str = "core") -> Any:
    """The rewritten program and the record, after its results were compared with eager."""
    module = _Chain(body)
    program = _export(module, x, dialect)
    result, record = PointwiseAffineToConv()(program)
    torch.testing.assert_close(result.module()(x.clone()), module(x.clone()), rtol=1e-4, atol=1e-5)
    assert record.modified == (result is not program)
    return result, record


_IMAGE = torch.randn(2, 6, 5, 5, generator=torch.Generator().manual_seed(1))  # H == W on purpose


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _image(rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    batch, _, height, width = like.shape
    return rows.view(batch, height, width, -1).permute(0, 3, 1, 2)


def _written(m: Any, x: torch.Tensor) -> torch.Tensor:
    rows = x.permute(0, 2, 3, 1).contiguous()
    y = m.one(rows).permute(0, 3, 1, 2)
    rows.add_(1)
    return y + rows.permute(0, 3, 1, 2)


_REWRITTEN: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "linear": lambda m, x: m.one(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
    "rows": lambda m, x: _image(m.one(_rows(x)), x),
    "rows that are written": _written,
    "tokens": lambda m, x: m.one(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, (5, 5)),
    "two in a chain": lambda m, x: _image(m.two(F.relu(m.one(_rows(x)))), x),
    "two chains": lambda m, x: _image(m.two(_rows(F.relu(_image(m.one(_rows(x)), x)))), x),
    "keyword": lambda m, x: _image(F.gelu(m.one(_rows(x)), approximate="tanh"), x),
    "bias and bias": lambda m, x: _image(m.one(_rows(x)) + m.vector, x),
    "add alpha": lambda m, x: _image(torch.add(m.one(_rows(x)), m.vector, alpha=2), x),
    "from the left": lambda m, x: _image(m.vector - m.one(_rows(x)), x),
    "no bias": lambda m, x: _image(m.bare(_rows(x)), x),
    "square addmm": lambda m, x: _image(torch.addmm(m.vector, _rows(x), m.square), x),
    "alpha and beta": lambda m, x: _image(
        torch.addmm(m.vector, _rows(x), m.square, beta=0.5, alpha=3), x
    ),
    "beta of zero": lambda m, x: _image(
        torch.addmm(m.vector * float("nan"), _rows(x), m.square, beta=0), x
    ),
    "mm": lambda m, x: _image(torch.mm(_rows(x), m.square.t()), x),
    "matmul": lambda m, x: (x.permute(0, 2, 3, 1) @ m.square).permute(0, 3, 1, 2),
    "weight on the left": lambda m, x: torch.matmul(
        m.square, x.permute(1, 0, 2, 3).reshape(6, -1)
    ).view(6, 2, 5, 5).transpose(0, 1),
    "norm between": lambda m, x: m.one(m.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2),
    "residual": lambda m, x: _image(_rows(x) + m.two(m.one(_rows(x))), x),
    "gated": lambda m, x: _image(torch.sigmoid(m.one(_rows(x))) * m.two(_rows(x)), x),
    "shared weight": lambda m, x: _image(m.one(m.one(_rows(x))), x),
    "shared elsewhere": lambda m, x: (_image(m.one(_rows(x)), x), m.one.weight * 2),
    "copies": lambda m, x: m.one(x.permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2) * 1,
    "exchanged and back": lambda m, x: m.one(x.permute(0, 3, 2, 1)).permute(0, 3, 2, 1),
    "two results": lambda m, x: (_image(m.one(_rows(x)), x), _image(m.one(_rows(x)), x).flatten(1)),
    "cast": lambda m, x: _image(m.one(_rows(x)).to(torch.float64), x),
    "dropout": lambda m, x: _image(F.dropout(m.one(_rows(x)), 0.5, m.training), x),
}  # fmt: skip


@pytest.mark.parametrize("case", _REWRITTEN)
def test_every_transposition_goes(case: str) -> None:
    """Where all axes are known the chain is computed in place: equal to eager, nothing moved."""
    module = _Chain(_REWRITTEN[case])
    program = _export(module, _IMAGE, "training")
    for spelt in (program, program.run_decompositions()):
        result, record = PointwiseAffineToConv()(spelt)
        torch.testing.assert_close(result.module()(_IMAGE), module(_IMAGE), rtol=1e-4, atol=1e-5)
        assert record.modified
        assert _moves(result) == []
        assert all(_calls(result, name) == 0 for name in ("mm", "linear", "matmul"))


_BIASES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "beside a product": lambda m, x: _image(_rows(x) @ m.square + m.vector, x),
    "in front": lambda m, x: _image(m.vector + m.bare(_rows(x)), x),
    "scaled, beside another": lambda m, x: _image(torch.add(m.one(_rows(x)), m.vector, alpha=2), x),
    "in the image": lambda m, x: _image(m.bare(_rows(x)), x) + m.vector.reshape(1, 6, 1, 1),
    "of the last axis": lambda m, x: (
        x.reshape(2, 6, 25).permute(2, 0, 1).transpose(1, 2).transpose(1, 2) @ m.square + m.vector
    ).permute(1, 2, 0).relu().reshape(2, 6, 5, 5),
}  # fmt: skip


@pytest.mark.parametrize("case", _BIASES)
@pytest.mark.parametrize("dialect", _DIALECTS)
def test_a_separate_bias_becomes_the_convolution_s(case: str, dialect: str) -> None:
    """One value a channel, added beside the map: no addition is left, the numbers stay."""
    result, record = _run(_BIASES[case], _IMAGE, dialect)
    assert record.modified
    assert _calls(result, "aten.add") == 0
    [convolution] = [n for n in result.graph.nodes if "conv" in str(n.target)]
    assert convolution.args[2] is not None


_NO_BIAS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "other user": lambda m, x: (
        y := m.one(_rows(x)), _image(y, x) * _image(y + m.vector, x)
    )[1],
    "by position": lambda m, x: _image(m.one(_rows(x)) + m.square[:2, :1].repeat(25, 1), x),
    "one for all": lambda m, x: _image(m.one(_rows(x)) + m.vector[:1], x),
    "scaled map": lambda m, x: _image(torch.add(m.vector, m.one(_rows(x)), alpha=2), x),
    "wider": lambda m, x: _image(m.one(_rows(x)) + m.vector.double(), x),
}  # fmt: skip


@pytest.mark.parametrize("case", _NO_BIAS)
def test_what_is_no_bias_stays_an_addition(case: str) -> None:
    """Read elsewhere, of other values or another dtype: added where it was, equal to eager."""
    result, _ = _run(_NO_BIAS[case], _IMAGE)
    assert _calls(result, "aten.add.Tensor") == 1


def test_constant_over_exchanged_axes_is_exchanged() -> None:
    """A constant that varies along two axes of one size is laid out anew though its sizes stay."""
    grid = torch.randn(1, 5, 5, 1, generator=torch.Generator().manual_seed(2))
    x = torch.randn(2, 5, 5, 6)
    result, record = _run(lambda m, x: (m.one(x.transpose(1, 2)) + grid).transpose(1, 2), x)
    assert record.modified
    assert _moves(result) == []


def _swapped(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Height and width, of one size, come out exchanged."""
    return m.one(x.permute(0, 3, 2, 1)).reshape(2, 5, 5, 6).permute(0, 3, 1, 2)


def test_exchanged_axes_of_equal_size_are_not_confused() -> None:
    """H == W exchanged by the permutations: one transposition stays, for the exchange is real."""
    result, record = _run(_swapped, _IMAGE)
    assert record.modified
    assert [n.args[1] for n in result.graph.nodes if "permute" in str(n.target)] == [[0, 1, 3, 2]]


def test_rows_regrouped_in_another_order_are_not_confused() -> None:
    """Batch, height and width of one size, taken for each other by the second view."""
    x = torch.randn(5, 6, 5, 5)

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        rows = x.permute(2, 3, 0, 1).reshape(-1, 6)
        return m.one(rows).view(5, 5, 5, 6).permute(0, 3, 1, 2)

    result, _ = _run(body, x)
    assert [n.args[1] for n in result.graph.nodes if n.target is aten.permute.default] == [
        [2, 1, 3, 0]
    ]


def test_channels_last_needs_no_convolution() -> None:
    """On a tensor with channels last the map becomes a linear, and both permutations go."""
    x = torch.randn(2, 5, 5, 6)

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        tokens = x.permute(0, 3, 1, 2).flatten(2).transpose(1, 2)
        return m.one(tokens).transpose(1, 2).unflatten(2, (5, 5)).permute(0, 2, 3, 1)

    result, record = _run(body, x, "training")
    assert record.modified
    assert _moves(result) == []
    assert _calls(result, "linear") == 1


def test_norm_over_the_last_axis_stays_a_norm() -> None:
    """In a frame with channels last the layer norm is the same operator, on the frame."""
    x = torch.randn(2, 5, 6)
    for dialect in _DIALECTS:
        result, _ = _run(lambda m, x: m.one(m.norm(x.transpose(0, 1))).transpose(0, 1), x, dialect)
        assert _moves(result) == []
        assert _calls(result, "layer_norm") == 1


def _mixed(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.two(F.gelu(m.one(x.transpose(-1, -2)))).transpose(-1, -2)


@pytest.mark.parametrize("shape", [(2, 6, 6), (6, 5)])
def test_tokens_mixed_along_the_sequence(shape: tuple[int, ...]) -> None:
    """Tokens of (batch, tokens, channels) mixed: neither channels nor last, so left alone."""
    module, x = _Chain(_mixed), torch.randn(shape)
    for dialect in _DIALECTS:
        program = _export(module, x, dialect)
        left_alone, record = PointwiseAffineToConv()(program)
        assert left_alone is program
        assert record.refusals


def test_convnext_block_keeps_no_transposition() -> None:
    """Depthwise convolution, norm, two linears, scale and residual, in NCHW: all in place."""
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
            self.norm = nn.LayerNorm(6, eps=1e-6)
            self.grow, self.shrink = nn.Linear(6, 24), nn.Linear(24, 6)
            self.scale = nn.Parameter(torch.randn(6, 1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            y = self.shrink(F.gelu(self.grow(y))).permute(0, 3, 1, 2)
            return x + self.scale * y

    module = nn.Sequential(Block(), Block()).eval()
    batch = torch.export.Dim("batch", min=1, max=8)
    for dialect in _DIALECTS:
        program = _export(module, _IMAGE, dialect, {0: batch})
        result, record = PointwiseAffineToConv()(program)
        assert "4 transpositions fewer" in record.changes[0]
        assert _moves(result) == []
        for size in (1, 2, 7):
            x = torch.randn(size, 6, 5, 5)
            torch.testing.assert_close(result.module()(x), module(x), rtol=1e-4, atol=1e-5)


def test_dynamic_sizes_stay_dynamic() -> None:
    """Batch, height and width may all be symbols: compared, never specialised."""
    module = _Chain(lambda m, x: _image(m.two(F.relu(m.one(_rows(x)))), x).flatten(2))
    shapes = {0: torch.export.Dim("b", max=9), 2: torch.export.Dim("h", max=9), 3: torch.export.Dim("w", max=9)}  # fmt: skip # noqa: E501
    for dialect in _DIALECTS:
        program = _export(module, _IMAGE, dialect, shapes)
        result, _ = PointwiseAffineToConv()(program)
        assert _moves(result) == []
        assert result.range_constraints == program.range_constraints
        for size in ((1, 6, 5, 5), (3, 6, 2, 7), (2, 6, 9, 4)):
            x = torch.randn(size)
            torch.testing.assert_close(result.module()(x), module(x), rtol=1e-4, atol=1e-5)


def test_half_precision_keeps_its_dtype() -> None:
    """Maps stay in bfloat16; the norm is formed in float32 and rounded once, as eager does."""
    module = _Chain(lambda m, x: m.one(m.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2))
    module, x = module.to(torch.bfloat16), _IMAGE.to(torch.bfloat16)
    result, record = PointwiseAffineToConv()(_export(module, x, "core"))
    assert record.modified
    torch.testing.assert_close(result.module()(x), module(x), rtol=2e-2, atol=2e-2)


def test_a_shared_weight_is_copied_once_and_left_alone() -> None:
    """Two uses of one weight get one kernel; the weight itself stays for its other user."""
    module = _Chain(lambda m, x: (_image(m.bare(m.bare(_rows(x))), x), m.bare.weight * 2))
    program = _export(module, _IMAGE, "training")
    result, _ = PointwiseAffineToConv()(program)
    assert set(result.state_dict) == {"bare.weight", "bare.weight_pointwise"}
    assert torch.equal(result.state_dict["bare.weight"], module.bare.weight)


def test_new_nodes_say_where_they_come_from() -> None:
    """Every new operator carries a fake value, the module path and the source line."""
    result, _ = _run(_REWRITTEN["norm between"], _IMAGE, "training")
    for node in result.graph.nodes:
        if node.op == "call_function":
            assert node.meta["val"] is not None
            assert node.meta["stack_trace"]
            assert node.meta["nn_module_stack"]


def test_two_results_do_not_become_one_memory() -> None:
    """Results that were separate for the caller stay separate."""

    def body(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = m.one(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return y, y.contiguous()

    module = _Chain(body)
    result, record = PointwiseAffineToConv()(_export(module, _IMAGE, "training"))
    assert record.modified
    one, two = result.module()(_IMAGE)
    one += 1
    torch.testing.assert_close(two, module(_IMAGE)[1], rtol=1e-4, atol=1e-5)


_REFUSED: dict[str, tuple[Callable[[Any, torch.Tensor], Any], str]] = {
    "self is an activation": (
        lambda m, x: _image(torch.addmm(_rows(x), _rows(x), m.square), x),
        "is not a constant",
    ),
    "computed weight": (
        lambda m, x: _image(F.linear(_rows(x), m.square * x.mean()), x),
        "not a constant",
    ),
    "addend by row": (
        lambda m, x: _image(torch.addmm(m.square, _rows(x), m.square), x),
        "from row to row",
    ),
    "spatial mixing": (
        lambda m, x: F.linear(x.permute(0, 2, 3, 1).flatten(1), m.vector.repeat(25)[None]),
        "",
    ),
    "part of the channels": (
        lambda m, x: F.linear(
            x.transpose(1, 3).unflatten(3, (2, 3)), m.square[:3, :3]
        ).flatten(3).transpose(1, 3),
        "",
    ),
    "one transposition only": (lambda m, x: m.one(x.permute(0, 2, 3, 1)), "no gain"),
    "batch is contracted": (
        lambda m, x: m.one(x.permute(1, 2, 3, 0)).permute(3, 0, 1, 2),
        "neither channels nor last",
    ),
}  # fmt: skip


_IMAGES = {
    "batch is contracted": torch.randn(6, 6, 5, 5),
    "addend by row": torch.randn(1, 6, 2, 3),  # as many rows as channels
}


@pytest.mark.parametrize("case", _REFUSED)
def test_refuses_with_a_reason_and_changes_nothing(case: str) -> None:
    """Where a rewrite would be wrong, or gain nothing, the very same program comes back."""
    body, reason = _REFUSED[case]
    x = _IMAGES.get(case, _IMAGE)
    _, record = _run(body, x, "training")
    assert not record.modified
    if reason:
        assert reason in record.refusals[0].reason


_UNTOUCHED: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "gather between": lambda m, x: _image(m.one(_rows(x)[torch.arange(49, -1, -1)]), x),
    "flip between": lambda m, x: m.one(x.permute(0, 2, 3, 1).flip(1)).permute(0, 3, 1, 2),
    "roll behind": lambda m, x: m.one(x.permute(0, 2, 3, 1)).roll(1, 1).permute(0, 3, 1, 2),
    "read by strides": lambda m, x: m.one(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).as_strided(
        (2, 150), (150, 1)
    ),
    "softmax over channels": lambda m, x: F.softmax(m.one(x.permute(0, 2, 3, 1)), -1),
    "no transposition": lambda m, x: m.one(x.reshape(-1, 5)[:30].reshape(-1, 6)).view(5, 5, 6),
    "attention": lambda _, x: (_rows(x) @ _rows(x).t()).softmax(-1),
}  # fmt: skip


@pytest.mark.parametrize("case", _UNTOUCHED)
def test_what_moves_positions_is_left_alone(case: str) -> None:
    """Gathers, flips and readers of strides end a chain; numbers stay those of eager."""
    _, record = _run(_UNTOUCHED[case], _IMAGE, "training")
    assert not record.modified


def test_custom_operator_behind_keeps_its_strides() -> None:
    """An operator of unknown habits gets the strides it was traced with."""
    with torch.library._scoped_library("menagerie_pointwise_test", "DEF") as library:
        library.define("probe(Tensor x) -> Tensor")
        library.impl("probe", lambda x: x.clone(), "CompositeExplicitAutograd")
        probe = torch.ops.menagerie_pointwise_test.probe.default
        module = _Chain(lambda m, x: probe(m.one(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)))
        program = _export(module, _IMAGE, "training")
        result, record = PointwiseAffineToConv()(program)
        assert not record.changes
        assert "may rely on the strides" in record.refusals[0].reason
        torch.testing.assert_close(result.module()(_IMAGE), module(_IMAGE))


def test_quantised_graph_comes_through_unharmed() -> None:
    """Between quantise and dequantise nothing is touched: the weight is no constant there."""
    import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed

    q = torch.ops.quantized_decomposed

    def body(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.permute(0, 2, 3, 1)
        y = q.quantize_per_tensor.default(y, 0.1, 0, -128, 127, torch.int8)
        y = q.dequantize_per_tensor.default(y, 0.1, 0, -128, 127, torch.int8)
        w = q.quantize_per_tensor.default(m.square, 0.05, 0, -128, 127, torch.int8)
        w = q.dequantize_per_tensor.default(w, 0.05, 0, -128, 127, torch.int8)
        return F.relu(F.linear(y, w)).permute(0, 3, 1, 2)

    for dialect in _DIALECTS:
        result, record = _run(body, _IMAGE, dialect)
        assert not record.modified
        assert _calls(result, "quantize_per_tensor") == 4


def test_running_twice_changes_nothing_more() -> None:
    """What the pass leaves behind gives it no more to do."""
    once, _ = _run(_REWRITTEN["two in a chain"], _IMAGE)
    assert PointwiseAffineToConv()(once)[0] is once
