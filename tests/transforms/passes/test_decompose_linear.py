"""DecomposeLinear: the same numbers without addmm, in the graph and in the lowered code."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transforms.lowering.cpu import BACKEND
from transforms.lowering.inductor import generate_code
from transforms.passes.decompose_linear import DecomposeLinear

aten = torch.ops.aten

_OPTIONS = {"aot_inductor.package": True, "cpp.vec_isa_ok": True, "cpp.simdlen": 256,
            "cpp.weight_prepack": False}  # fmt: skip


def _export(module: nn.Module, *inputs: torch.Tensor, stage: str = "functional") -> Any:
    program = torch.export.export(module.eval(), inputs, strict=False)
    if stage == "training":
        return program
    return program.run_decompositions({} if stage == "functional" else None)


def _targets(program: Any) -> set[Any]:
    return {n.target for n in program.graph.nodes if n.op == "call_function"}


def _called(program: Any) -> str:
    """The kernels that the lowered code calls; its comments speak of addmm in any case."""
    return " ".join(
        re.findall(r"\baoti_torch_\w+\(", generate_code(program, _OPTIONS, BACKEND).wrapper)
    )


def _assert_described(program: Any) -> None:
    """Every call has a fake value, a module path and a source line."""
    for node in program.graph.nodes:
        if node.op == "call_function":
            assert {"val", "nn_module_stack", "stack_trace"} <= set(node.meta), node.name


@settings(max_examples=18, deadline=None)
@given(
    leading=st.lists(st.sampled_from([1, 3]), max_size=3),
    features=st.sampled_from([(4, 4), (4, 3), (1, 4), (4, 1)]),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    stage=st.sampled_from(["training", "functional", "core"]),
)
def test_any_rank_equals_eager(
    leading: list[int], features: tuple[int, int], bias: bool, dtype: torch.dtype, stage: str
) -> None:
    """Vectors, single rows and batches, with and without bias, keep numbers, dtype and strides."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(*features, bias=bias), nn.ReLU()).to(dtype)
    x = torch.randn(*leading, features[0]).to(dtype)
    program = _export(module, x, stage=stage)
    result, _ = DecomposeLinear()(program)
    assert not _targets(result) & {aten.linear.default, aten.addmm.default}
    _assert_described(result)
    got, expected = result.module()(x), module(x)
    assert (got.dtype, got.stride()) == (expected.dtype, expected.stride())
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(got, expected, **close)  # two roundings for one


class _Net(nn.Module):
    """Two linear layers, the first one's result used as it is and after a pointwise call."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 6, bias=bias), nn.Linear(6, 8, bias=bias)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.first(x)
        return y, self.second(torch.relu(y))


@pytest.mark.parametrize(
    ("shape", "stage"),
    [((3, 8), "functional"), ((1, 8), "functional"), ((1, 8), "core"), ((3, 8), "core"),
     ((8,), "functional"), ((1, 1, 8), "functional"), ((2, 3, 8), "functional")],
)  # fmt: skip
def test_inductor_does_not_fuse_it_back(shape: tuple[int, ...], stage: str) -> None:
    """No lowered program names addmm, at a batch of one neither."""
    program = _export(_Net(bias=True), torch.randn(shape), stage=stage)
    result, _ = DecomposeLinear()(program)
    assert "addmm" not in _called(result)


def test_inductor_would_fuse_the_plain_form_back() -> None:
    """Without the pass there is an addmm: what the test above looks for can be found."""
    assert "addmm" in _called(_export(_Net(bias=True), torch.randn(3, 8)))


@pytest.mark.parametrize("rows", [1, 4])
def test_dynamic_rows(rows: int) -> None:
    """A symbolic batch stays symbolic, and no addmm comes of it."""
    batch = torch.export.Dim("batch", min=1, max=9)
    module = _Net(bias=True).eval()
    program = torch.export.export(
        module, (torch.randn(4, 8),), dynamic_shapes=({0: batch},), strict=False
    ).run_decompositions({})
    result, _ = DecomposeLinear()(program)
    x = torch.randn(rows, 8)
    torch.testing.assert_close(result.module()(x), module(x))
    assert "addmm" not in _called(result)


def test_weight_is_transposed_at_compile_time() -> None:
    """A weight that linear layers alone read is replaced; nothing permutes at run time."""
    module = nn.Sequential(nn.Linear(4, 3))
    result, _ = DecomposeLinear()(_export(module, torch.randn(2, 4)))
    assert set(result.state_dict) == {"0.weight_transposed", "0.bias"}
    torch.testing.assert_close(result.state_dict["0.weight_transposed"], module[0].weight.t())
    assert aten.permute.default not in _targets(result)


class _Shared(nn.Module):
    """A weight that is an embedding, too."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = nn.functional.embedding(torch.tensor([1, 3]), self.weight)
        return nn.functional.linear(x + rows, self.weight)


def test_shared_weight_is_kept_and_permuted() -> None:
    """A weight with another use is not stored twice."""
    module, x = _Shared(), torch.randn(2, 4)
    result, _ = DecomposeLinear()(_export(module, x))
    assert "weight" in result.state_dict
    assert aten.permute.default in _targets(result)
    torch.testing.assert_close(result.module()(x), module(x))


def test_linear_layers_that_share_a_weight_share_its_transpose() -> None:
    """Tied layers read one transposed constant."""

    class Tied(_Shared):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.weight) + nn.functional.linear(x * 2, self.weight)

    module, x = Tied(), torch.randn(2, 4)
    result, _ = DecomposeLinear()(_export(module, x))
    assert set(result.state_dict) == {"weight_transposed"}
    torch.testing.assert_close(result.module()(x), module(x))


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (2, 1), (1, 0.5), (0, 3), (-1.5, 0)])
@pytest.mark.parametrize("bias", [(), (3,), (1, 3), (2, 1), (2, 3)])
def test_addmm_with_factors_and_any_bias(beta: float, alpha: float, bias: tuple[int, ...]) -> None:
    """Beta and alpha are kept, a bias of any broadcast shape is added; beta 0 hides its NaN."""

    class Factors(nn.Module):
        def forward(self, b: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.addmm(b, x, y, beta=beta, alpha=alpha)

    inputs = (torch.randn(bias), torch.randn(2, 4), torch.randn(4, 3))
    result, _ = DecomposeLinear()(_export(Factors(), *inputs))
    assert aten.addmm.default not in _targets(result)
    if beta == 0:
        inputs[0].fill_(float("nan"))
    torch.testing.assert_close(result.module()(*inputs), Factors()(*inputs))


def test_written_weight_is_permuted_at_run_time() -> None:
    """A buffer that the program itself writes is no constant, before decomposition either."""

    class Counter(_Shared):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.ones(3, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.state.add_(1)
            return nn.functional.linear(x, self.state)

    x = torch.randn(2, 4)
    result, _ = DecomposeLinear()(_export(Counter(), x, stage="training"))
    module, eager = result.module(), Counter()
    for _ in range(3):
        torch.testing.assert_close(module(x), eager(x))


def test_vector_weight_is_refused() -> None:
    """Linear with a vector for a weight has no matrix to transpose."""

    class Vector(nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, w)

    program = _export(Vector(), torch.randn(2, 4), torch.randn(4))
    result, record = DecomposeLinear()(program)
    assert result is program
    assert "vector" in record.refusals[0].reason


def test_quantised_linear_is_left_whole() -> None:
    """A linear layer between dequantise and quantise is what a backend looks for."""
    import torch.ao.quantization.fx._decomposed

    quantised = torch.ops.quantized_decomposed

    class Quantised(_Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = (0.05, 0, -128, 127, torch.int8)
            x = quantised.dequantize_per_tensor(quantised.quantize_per_tensor(x, *scale), *scale)
            y = torch.relu(self.first(x))
            return quantised.dequantize_per_tensor(quantised.quantize_per_tensor(y, *scale), *scale)

    program = _export(Quantised(bias=True), torch.randn(2, 8))
    result, record = DecomposeLinear()(program)
    assert result is program
    assert "quantised" in record.refusals[0].reason
