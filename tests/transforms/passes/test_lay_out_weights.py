"""Weights that are claimed channels-last change how a program is computed, never what it says."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.pieces import run_piece
from transforms.passes.lay_out_weights import ClaimChannelsLast


class _Views(nn.Module):
    """Views of convolutions' results that channels-last strides do not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Of (2, 3, 8, 8)."""
        y = self.conv(x)
        direct = y.view(2, 8 * 36)
        channels = y.view(2, 4, 2, 6, 6).permute(0, 2, 1, 3, 4).reshape(2, 8, 6, 6)
        permuted = F.relu(y).permute(0, 1, 3, 2).contiguous().view(2, 16, 18)
        rows = self.up(y).view(2 * 4 * 12, 12)
        return direct, channels, permuted, self.patches(y), rows

    @staticmethod
    def patches(y: torch.Tensor) -> torch.Tensor:
        """As MobileViT unfolds a map to 2x2 patches and folds it back."""
        batch, channels, height, width = y.shape
        down, across = height // 2, width // 2
        z = y.view(batch * channels * down, 2, across, 2).transpose(1, 2)
        z = z.reshape(batch, channels, down * across, 4).transpose(1, 3).softmax(-1)
        z = z.transpose(1, 3).reshape(batch * channels * down, across, 2, 2).transpose(1, 2)
        return z.reshape(batch, channels, height, width)


class _Windows(nn.Module):
    """Overlapping windows of a convolution's result, read by strides."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (2, 3, 8, 8)."""
        return self.conv(x).as_strided((2, 8, 5, 12), (288, 36, 6, 1)) * 2


@pytest.mark.parametrize("module", [_Views, _Windows])
def test_what_export_proved_of_a_result_stays_true(module: type[nn.Module]) -> None:
    """Lowered and run, every output is eager's."""
    torch.manual_seed(3)
    model, x = module().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        program = torch.export.export(model, (x,)).run_decompositions({})
        expected = model(x)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    results = run_piece(program, [x])
    assert len(results) == len(wanted)
    for result, value in zip(results, wanted, strict=True):
        torch.testing.assert_close(result, value, rtol=1e-5, atol=1e-5)


class _Anchors(nn.Module):
    """Columns of a matrix as parameter, buffers and a plain attribute, which export lifts."""

    def __init__(self) -> None:
        super().__init__()
        columns = torch.arange(192.0).reshape(48, 4)
        self.weight = nn.Parameter(columns.t())
        self.register_buffer("kept", columns.add(1).t())
        self.register_buffer("not_kept", columns.add(2).t(), persistent=False)
        self.anchors = columns.add(3).t()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of (4, 48)."""
        return x * self.weight + self.kept * self.anchors - self.not_kept


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.sweep), "metal"])
def test_constants_may_be_transposed(target: str) -> None:
    """Whatever the module keeps them as; none is contiguous."""
    model, x = _Anchors().eval(), torch.randn(4, 48)
    with torch.no_grad():
        program = torch.export.export(model, (x,), strict=False).run_decompositions({})
        [result] = run_piece(program, [x], target=target)
        torch.testing.assert_close(result, model(x))


def test_weights_of_convolutions_are_claimed_still() -> None:
    """So that no kernel reorders them at every call."""
    program = torch.export.export(_Views().eval(), (torch.randn(2, 3, 8, 8),))
    claimed, _ = ClaimChannelsLast()(program.run_decompositions({}))
    assert claimed.state_dict["conv.weight"].stride() == (27, 1, 9, 3)
    assert program.state_dict["conv.weight"].stride() == (27, 9, 3, 1)
