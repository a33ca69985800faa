"""FoldBatchNorm: equal to eager wherever it folds, and silent wherever it must not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transforms import run_passes

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


def _norms_left(program: Any) -> int:
    return sum("batch_norm" in str(n.target) for n in program.graph.nodes)


@settings(max_examples=25, deadline=None)
@given(
    rank=st.integers(1, 3),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
    affine=st.booleans(),
    functional=st.booleans(),
    stride=st.integers(1, 2),
    seed=st.integers(0, 2**31),
)
def test_folded_convolution_equals_eager(  # noqa: PLR0917 - Hypothesis passes by name
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


def test_original_program_is_untouched() -> None:
    """A pass works on a copy: the program handed in still computes and still has its norm."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), _norm(4, 2))
    x = torch.randn(1, 3, 6, 6)
    program = _export(module, x)
    run_passes(program, [FOLD])
    assert _norms_left(program) == 1
    torch.testing.assert_close(program.module()(x), module.eval()(x))


class _Residual(nn.Module):
    """The convolution's own result is used beside the normalised one."""

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


class _Transposed(_Residual):
    """A transposed convolution, spelt as the core operator."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.aten.convolution.default(
            x, self.weight, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1
        )
        return self.norm(y)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (_Residual(), "other users"),
        (_SharedWeight(), "shared"),
        (_ComputedWeight(), "not a constant"),
        (_Transposed(), "transposed"),
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
