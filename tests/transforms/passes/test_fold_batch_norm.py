"""FoldBatchNorm: equal to eager wherever it folds, and silent wherever it must not."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.pieces import assert_as_eager
from transforms import convert, run_passes

if TYPE_CHECKING:
    from pathlib import Path

FOLD = "fold_batch_norm"


def _norm(features: int, rank: int, *, affine: bool = True) -> nn.Module:
    """A batch normalisation with statistics that are not the identity."""
    norm = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[rank](features, affine=affine)
    torch.nn.init.normal_(norm.running_mean)
    torch.nn.init.uniform_(norm.running_var, 0.3, 3.0)
    if affine:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    return norm


def _export(module: nn.Module, *inputs: torch.Tensor, functional: bool = True) -> Any:
    program = torch.export.export(module.eval(), inputs, strict=False)
    return program.run_decompositions({}) if functional else program


def _staged(module: nn.Module, x: torch.Tensor, stage: str) -> Any:
    program = _export(module, x, functional=False)
    if stage == "training":
        return program
    return program.run_decompositions({} if stage == "functional" else None)


def _norms_left(program: Any) -> int:
    return sum("batch_norm" in str(n.target) for n in program.graph.nodes)


@settings(max_examples=20, deadline=None)
@given(
    rank=st.integers(1, 3),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
    affine=st.booleans(),
    functional=st.booleans(),
    stride=st.integers(1, 2),
    seed=st.integers(0, 2**31),
)
def test_folded_convolution_equals_eager(
    rank: int, groups: int, bias: bool, affine: bool, functional: bool, stride: int, seed: int
) -> None:
    """For every kind of convolution the fold removes the norm and keeps the numbers."""
    torch.manual_seed(seed)
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[rank](
        4, 6, 3, stride=stride, groups=groups, bias=bias
    )
    module = nn.Sequential(conv, _norm(6, rank, affine=affine), nn.ReLU())
    x = torch.randn(2, 4, *[7] * rank)
    program = _export(module, x, functional=functional)
    folded, log = run_passes(program, [FOLD])
    assert log.records[0].modified
    assert _norms_left(folded) == 0
    torch.testing.assert_close(folded.module()(x), module(x), rtol=1e-4, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(
    rank=st.integers(1, 3),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    stride=st.integers(1, 2),
    stage=st.sampled_from(["training", "functional", "core"]),
    seed=st.integers(0, 2**31),
)
def test_folded_transposed_convolution_equals_eager(
    rank: int, groups: int, bias: bool, stride: int, stage: str, seed: int
) -> None:
    """Output channels run over groups and the weight's second axis; square on purpose."""
    torch.manual_seed(seed)
    conv = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[rank](
        8, 8, 2, stride=stride, groups=groups, bias=bias, output_padding=stride - 1, padding=1
    )
    module = nn.Sequential(conv, _norm(8, rank))
    x = torch.randn(2, 8, *[4] * rank)
    program = _staged(module, x, stage)
    folded, log = run_passes(program, [FOLD])
    assert log.records[0].modified
    assert _norms_left(folded) == 0
    torch.testing.assert_close(folded.module()(x), module(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stage", ["training", "functional"])
@pytest.mark.parametrize("bias", [True, False])
def test_folded_linear_equals_eager(bias: bool, stage: str) -> None:
    """Square linear layers fold the right way round."""
    module = nn.Sequential(nn.Linear(6, 6, bias=bias), _norm(6, 1), nn.ReLU())
    x = torch.randn(3, 6)
    folded, log = run_passes(_staged(module, x, stage), [FOLD])
    assert log.records[0].modified
    assert _norms_left(folded) == 0
    assert len(folded.state_dict) == 2
    torch.testing.assert_close(folded.module()(x), module(x), rtol=1e-4, atol=1e-5)


def test_a_norm_read_from_a_file_is_folded() -> None:
    """There each of its three results is picked, whether anything reads it or not."""
    module, file = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), io.BytesIO()
    images = torch.randn(2, 3, 5, 5)
    torch.export.save(torch.export.export(module, (images,)).run_decompositions(), file)
    program = torch.export.load(io.BytesIO(file.getvalue()))
    result, log = run_passes(program, ["fold_batch_norm"])
    assert len(log.records[0].changes) == 1
    torch.testing.assert_close(result.module()(images), module(images))


class Measured(nn.Module):
    """A convolution and a norm that returns what it goes by."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), _norm(4, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What the norm gives, its two statistics with some ones behind each."""
        norm = self.norm
        given = (norm.weight, norm.bias, norm.running_mean, norm.running_var, False, 0.1, 1e-5)
        y, mean, deviation = torch.native_batch_norm(self.conv(x), *given)
        return y, torch.cat([mean, x.new_ones(2)]), torch.cat([deviation, x.new_ones(3)])


@pytest.mark.parametrize("target", ["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def test_statistics_that_are_returned_are_eagers(target: str, tmp_path: Path) -> None:
    """In inference eager gives none on the CPU; torch's own code for a GPU would give them."""
    module, x = Measured().eval(), torch.randn(2, 3, 6, 6)
    made = convert(module, (x,), target=target, out=tmp_path / "out", measure_seconds=0)
    assert [each.shape for each in module(x)] == [(2, 4, 4, 4), (2,), (3,)]
    assert_as_eager(made.folder, module, (x,), rtol=1e-4, atol=1e-5)
    [folded] = [r for r in made.report.passes[0].records if r.name == FOLD]
    assert any("folded" in change for change in folded.changes)


def test_padding_by_name_is_kept() -> None:
    """The overload that pads by name keeps its arguments."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding="same", dilation=2), _norm(4, 2))
    x = torch.randn(1, 3, 6, 6)
    folded, log = run_passes(_export(module, x, functional=False), [FOLD])
    assert log.records[0].modified
    torch.testing.assert_close(folded.module()(x), module(x), rtol=1e-4, atol=1e-5)


def test_statistics_that_the_program_writes_are_no_constants() -> None:
    """Running statistics written in place before decomposition change from call to call."""

    class Counting(_Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.norm.running_mean.add_(1)
            return self.norm(self.conv(x))

    program = _export(Counting(), torch.randn(1, 3, 6, 6), functional=False)
    result, log = run_passes(program, [FOLD])
    assert result is program
    assert "not a constant" in log.records[0].refusals[0].reason


def test_quantised_weight_is_left_as_it_is() -> None:
    """A dequantised weight is no constant to fold into."""
    import torch.ao.quantization.fx._decomposed

    class Quantised(_Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = (0.05, 0, -128, 127, torch.int8)
            quantised = torch.ops.quantized_decomposed
            integers = quantised.quantize_per_tensor(self.conv.weight, *scale)
            weight = quantised.dequantize_per_tensor(integers, *scale)
            return self.norm(torch.nn.functional.conv2d(x, weight))

    program = _export(Quantised(), torch.randn(1, 3, 6, 6))
    assert run_passes(program, [FOLD])[0] is program


def test_original_program_is_untouched() -> None:
    """A pass works on a copy: the program handed in still computes and still has its norm."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), _norm(4, 2))
    x = torch.randn(1, 3, 6, 6)
    program = _export(module, x)
    run_passes(program, [FOLD])
    assert _norms_left(program) == 1
    torch.testing.assert_close(program.module()(x), module.eval()(x))


class _Residual(nn.Module):
    """The convolution's own result is used besides the normalised one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), _norm(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.norm(y) + y


class _SharedWeight(_Residual):
    """Two convolutions with one weight, one of them normalised."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)) + torch.nn.functional.conv2d(x, self.conv.weight)


class _ComputedWeight(_Residual):
    """A weight that is made of the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.nn.functional.conv2d(x, self.conv.weight * x.mean()))


class _Unbatched(_Residual):
    """A convolution without a batch axis: what the norm takes for channels are rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x[0])
        return torch.nn.functional.batch_norm(
            y, self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias
        )


class _Sequence(_Residual):
    """A linear layer over a sequence as long as its features: the norm runs over time."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 4), _norm(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x.flatten(1, 2)[:, :4]))


class _Overflow(_Residual):
    """A gain that takes the weight beyond its range."""

    def __init__(self) -> None:
        super().__init__()
        torch.nn.init.constant_(self.norm.weight, 3e38)
        torch.nn.init.constant_(self.conv.weight, 1e3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (_Residual(), "other users"),
        (_SharedWeight(), "shared"),
        (_ComputedWeight(), "not a constant"),
        (_Unbatched(), "not the output features"),
        (_Sequence(), "not the output features"),
        (_Overflow(), "beyond torch.float32"),
    ],
)
def test_refuses_with_a_reason_and_changes_nothing(module: nn.Module, reason: str) -> None:
    """Where a fold would be wrong the pass says why and hands back the very same program."""
    x = torch.randn(1, 3, 6, 6)
    program = _export(module, x)
    result, log = run_passes(program, [FOLD])
    assert result is program
    assert not log.records[0].modified
    assert reason in log.records[0].refusals[0].reason


def test_training_statistics_are_left_alone() -> None:
    """With batch statistics there is nothing constant to fold."""

    class Training(_Residual):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.batch_norm.default(
                self.conv(x), None, None, None, None, True, 0.1, 1e-5, False
            )

    program = _export(Training(), torch.randn(2, 3, 6, 6), functional=False)
    _, log = run_passes(program, [FOLD])
    assert not log.records[0].modified


def _small_gain(layer: nn.Module, norm: nn.Module) -> nn.Sequential:
    """Normal numbers in float16, whose products with one channel's gain are not."""
    nn.init.normal_(layer.weight, std=1e-2)
    norm.running_var[0] = 6e4
    norm.weight.data[0] = 1e-2
    norm.bias.data[0] = 0.0
    return nn.Sequential(layer, norm).eval().half()


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Conv2d(8, 4, 3, bias=False), nn.BatchNorm2d(4), (2, 8, 9, 9)),
        (nn.ConvTranspose2d(8, 4, 3, groups=2, bias=False), nn.BatchNorm2d(4), (2, 8, 9, 9)),
        (nn.Linear(64, 4, bias=False), nn.BatchNorm1d(4), (16, 64)),
    ],
    ids=["conv", "transposed", "linear"],
)
@pytest.mark.parametrize("core", [False, True])
def test_half_precision_keeps_its_digits(
    layer: nn.Module, norm: nn.Module, shape: tuple[int, ...], core: bool
) -> None:
    """A gain that would make float16's subnormal numbers of the weights is not folded."""
    torch.manual_seed(0)
    module, x = _small_gain(layer, norm), torch.randn(shape).half()
    exact = copy.deepcopy(module).double()(x.double())[:, 0]
    program = torch.export.export(module, (x,), strict=False)
    if core and not isinstance(layer, nn.Linear):  # of which core ATen makes products
        program = program.run_decompositions()
    result, log = run_passes(program, ["fold_batch_norm"])
    errors = [(m(x)[:, 0].double() - exact).norm() for m in (result.module(), module)]
    assert errors[0] < 2 * errors[1]
    assert "few of its digits" in log.records[0].refusals[0].reason


def test_half_precision_keeps_its_dtype() -> None:
    """Weights are folded in double and rounded once, back to the model's own dtype."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), _norm(4, 2)).to(torch.bfloat16)
    x = torch.randn(1, 3, 6, 6, dtype=torch.bfloat16)
    folded, _ = run_passes(_export(module, x), [FOLD])
    assert {p.dtype for p in folded.state_dict.values()} == {torch.bfloat16}
    assert folded.module()(x).dtype is torch.bfloat16


def test_weights_no_longer_needed_are_dropped() -> None:
    """After the fold the program carries the folded weight and bias, and nothing of the norm."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), _norm(4, 2))
    folded, _ = run_passes(_export(module, torch.randn(1, 3, 6, 6)), [FOLD])
    assert set(folded.state_dict) == {"0.weight_folded", "0.weight_folded_bias"}


def test_dynamic_batch_stays_dynamic() -> None:
    """The fold does not specialise a symbolic dimension."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), _norm(4, 2)).eval()
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(
        module, (torch.randn(3, 3, 6, 6),), dynamic_shapes=({0: batch},), strict=False
    ).run_decompositions({})
    folded, _ = run_passes(program, [FOLD])
    for size in (1, 5, 8):
        x = torch.randn(size, 3, 6, 6)
        torch.testing.assert_close(folded.module()(x), module(x), rtol=1e-4, atol=1e-5)
