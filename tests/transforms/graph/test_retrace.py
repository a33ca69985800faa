"""Programs that are followed once come out as torch's own two traces have them."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch._functorch.aot_autograd import aot_export_module as torchs_own
from torch._inductor.decomposition import select_decomp_table
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule
from torch.fx.graph import CodeGen
from torch.utils._pytree import tree_leaves

from transforms.export.trace import trace
from transforms.graph.aliasing import functional
from transforms.graph.retrace import aot_export_module, decompose_program

aten = torch.ops.aten
Written = tuple[str, str, tuple[str, ...], tuple[str, ...]]


class _Mobile(nn.Module):
    """A convolution whose statistics and activations are written in place, a head of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(inplace=True))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 2)."""
        y = self.body(x)
        y += y.relu()
        return self.head(y.mean((2, 3)).flatten(1)).relu_()  # type: ignore[no-any-return]


class _Sized(nn.Module):
    """Numbers of a dynamic size, a turned input as a result, a constant."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(N, 4) to (6 N), (4, N) and (N, 4)."""
        places = torch.arange(2 * x.shape[0]) * 1.0
        whole = torch.cat([x.t().reshape(-1), places])
        return whole, x.t(), nn.functional.layer_norm(x, [4]) + torch.tensor([1.0, 2.0, 3.0, 4.0])


_MODULES = {
    "in place": (_Mobile, torch.randn(2, 3, 5, 5), None),
    "dynamic": (_Sized, torch.randn(3, 4), ({0: Dim("n", min=2, max=50)},)),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 8), torch.randn(2, 3, 8), None),
    "recurrent": (lambda: nn.LSTM(3, 4), torch.randn(2, 1, 3), None),
}


def _lines(module: GraphModule) -> list[Written]:
    found, places = [], {node: place for place, node in enumerate(module.graph.nodes)}
    for node in module.graph.nodes:
        value = node.meta.get("val")
        sides = (value.shape, value.stride()) if isinstance(value, Tensor) else ((), ())
        called = str(node.target) if node.op == "call_function" else node.op
        sources = str([places[source] for source in node.all_input_nodes])
        found.append((called, sources, tuple(map(str, sides[0])), tuple(map(str, sides[1]))))
    return found


@pytest.mark.filterwarnings("ignore:.*assigned during export")
@pytest.mark.parametrize("name", _MODULES)
def test_a_program_is_followed_once_to_what_torch_finds(name: str) -> None:
    """Operators, layouts, signature and ranges of sizes."""
    make, x, shapes = _MODULES[name]
    program = torch.export.export(make().eval(), (x,), dynamic_shapes=shapes, strict=False)
    expected = program.run_decompositions({})
    with patch.object(ExportedProgram, "run_decompositions", side_effect=AssertionError):
        found = functional(program)
    assert _lines(found.graph_module) == _lines(expected.graph_module)
    assert found.graph_signature.input_specs == expected.graph_signature.input_specs
    kinds = [[spec.kind for spec in p.graph_signature.output_specs] for p in (found, expected)]
    assert kinds[0] == kinds[1]
    assert found.range_constraints == expected.range_constraints
    with torch.no_grad():
        torch.testing.assert_close(found.module()(x), expected.module()(x), rtol=0, atol=0)


def _read_before(x: Tensor) -> Any:
    y = x.exp()
    z = y.sin()
    y.relu_()
    return z, y, y.neg_()


def _by_a_view(x: Tensor) -> Any:
    y = x.exp()
    z = y.view(-1)
    y.mul_(2)
    return z, y


def _after_a_view(x: Tensor) -> Any:
    y = x.exp().t()
    y.add_(1)
    return y.reshape(-1).sub_(3)


def _before_a_view(x: Tensor) -> Any:
    y = x.exp()
    y.mul_(y)
    return y.view(-1)[1:], y


def _kept_dtype(x: Tensor) -> Any:
    half, truth = x.half(), x + 1
    half.add_(x)
    truth.lt_(1)
    return half, truth


def _over_what_came(x: Tensor) -> Any:
    return x.add_(1), x * 2


def _by_the_first_result(x: Tensor) -> Any:
    y = x.exp()
    z = y.mul_(2)
    y.add_(1)
    return z * 1


def _filled(x: Tensor) -> Any:
    y = x.exp()
    y.zero_()
    y[0].fill_(2)
    return y


def _over_a_part_by_places(x: Tensor) -> Any:
    y = x.exp()[:, ::2]
    y.add_(1)
    z = x.exp()[1:]
    z.add_(1)
    return y.as_strided((2, 2), (3, 1)), z.as_strided((4,), (1,), 0)


def _over_one_row_as_many(x: Tensor) -> Any:
    y = x.exp()[:1].expand(2, 3)
    y.index_fill_(0, torch.tensor([0]), 7.0)
    return y * 1


def _set_to_another(x: Tensor) -> Any:
    y, z = x + 1, x.exp()
    y.set_(z)  # type: ignore[call-overload]
    y.add_(1)
    return z


def _in_a_branch(x: Tensor) -> Any:
    def branch(x: Tensor) -> Tensor:
        y = x.exp()
        torch.einsum("ij->ji", y).add_(1)
        return y

    return torch.cond(x.sum() > 0, branch, lambda x: branch(x) * 2, (x,))


_WRITERS = [
    _read_before, _by_a_view, _after_a_view, _before_a_view, _kept_dtype, _over_what_came,
    _by_the_first_result, _filled, _over_a_part_by_places, _over_one_row_as_many, _in_a_branch,
    _set_to_another,
]  # fmt: skip


class _Writer(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.filterwarnings("ignore:Use of index_fill_ on expanded")
@pytest.mark.parametrize("function", _WRITERS)
def test_what_is_written_in_place_reads_as_in_eager(function: Any) -> None:
    """By each of its names, whether it is followed once or not; dtypes are kept."""
    x = torch.randn(2, 3)
    program = torch.export.export(_Writer(function), (x.clone(),), strict=False)
    made = functional(program)
    called = [n.target for n in made.graph.nodes if n.op == "call_function"]
    assert not any(getattr(t, "_schema", None) and t._schema.is_mutable for t in called)
    ours, eagers = x.clone(), x.clone()
    torch.testing.assert_close(made.module()(ours), function(eagers), rtol=0, atol=0)
    torch.testing.assert_close(ours, eagers, rtol=0, atol=0)


def test_an_input_may_be_called_as_an_operator() -> None:
    """No other node keeps its name."""

    class Module(nn.Module):
        def forward(self, relu: Tensor, linear: Tensor) -> Tensor:
            """(2) and (2) to (2)."""
            return relu.relu() + linear

    inputs = (torch.tensor([1.0, -1.0]), torch.ones(2))
    made = decompose_program(torch.export.export(Module(), inputs), {})
    assert list(made.graph_signature.user_inputs) == ["relu", "linear"]
    torch.testing.assert_close(made.module()(*inputs), torch.tensor([2.0, 1.0]))


def test_operators_are_written_out_by_their_functions() -> None:
    """Also one that torch keeps whole."""
    table = {
        aten.linear.default: lambda x, weight, bias: x @ weight.t() + bias,
        aten.relu.default: lambda x: x.clamp(min=0),
    }
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.SiLU())
    program = torch.export.export(module, (torch.randn(2, 3),))
    expected = program.run_decompositions(dict(table))
    assert _lines(decompose_program(program, table).graph_module) == _lines(expected.graph_module)


@pytest.mark.parametrize("name", _MODULES)
def test_inductor_is_given_what_torch_would_give_it(name: str) -> None:
    """The graph with inputs for all that the module holds, and which are which."""
    make, x, shapes = _MODULES[name]
    module = trace("main", make().eval(), (x,), shapes=shapes).module(check_guards=False)
    module.graph.set_codegen(CodeGen())
    results = module.graph.output_node()
    results.args = (tuple(tree_leaves(results.args[0])),)
    inputs = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]
    table = dict(select_decomp_table())
    ours, signature = aot_export_module(module, inputs, trace_joint=False, decompositions=table)
    torchs, its = torchs_own(module, inputs, trace_joint=False, decompositions=table)
    assert _lines(ours) == _lines(torchs)
    assert signature.inputs_to_parameters == its.inputs_to_parameters
    assert signature.inputs_to_buffers == its.inputs_to_buffers
    assert (signature.user_inputs, signature.user_outputs) == (its.user_inputs, its.user_outputs)
