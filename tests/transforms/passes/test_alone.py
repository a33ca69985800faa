"""Each pass alone, without those that precede it in a target's list, keeps what a program computes.

Programs are run by eager PyTorch, round the front door, which runs a whole list.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from transforms import run_passes
from transforms.pipeline import available_passes

_WIDTH = 4


def _images(x: torch.Tensor) -> torch.Tensor:
    """(3, 8, 4) as one image of four channels."""
    return x.permute(2, 0, 1)[None]


def _rows(image: torch.Tensor) -> torch.Tensor:
    return image[0].permute(1, 2, 0)


class _Steps(nn.Module):
    """Steps from (3, 8, 4) to the same, each with a module of its own; some write in place."""

    def __init__(self, steps: list[str]) -> None:
        super().__init__()
        self._steps = steps
        kinds = {
            "linear": lambda: nn.Linear(_WIDTH, _WIDTH),
            "joined": lambda: nn.Linear(2 * _WIDTH, _WIDTH),
            "conv": lambda: nn.Sequential(
                nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(_WIDTH)
            ),
            "sequence": lambda: nn.Sequential(
                nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, 8), nn.GELU(), nn.Linear(8, _WIDTH)
            ),
            "conv1d": lambda: nn.Conv1d(_WIDTH, _WIDTH, 3, padding=1, groups=2),
            "point": lambda: nn.Conv2d(_WIDTH, _WIDTH, 1),
            "norm": lambda: nn.LayerNorm(_WIDTH),
            "batch": lambda: nn.BatchNorm1d(8),
        }
        made = (kinds.get(step, nn.Identity)() for step in steps)
        self._layers = nn.ModuleList(made)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = x
        for step, layer in zip(self._steps, self._layers, strict=True):
            x = self._step(step, layer, x, first)
        return x, x.mT

    def _step(self, step: str, layer: nn.Module, x: torch.Tensor, first: torch.Tensor) -> Any:  # noqa: C901, PLR0912
        match step:
            case "joined":
                return layer(torch.cat([x, first], -1))
            case "conv" | "point":
                return _rows(layer(_images(x)))
            case "conv1d":
                return layer(x.mT).mT
            case "turned":
                return F.relu(x.permute(1, 0, 2)).permute(1, 0, 2).contiguous()
            case "shifted":  # as relative positions are
                square = F.pad(x @ x.mT, (1, 0)).view(3, 9, 8)[:, 1:].reshape(3, 8, 8)
                return square @ x / 100
            case "same":
                return torch.exp(-x.abs()) + torch.exp(-x.abs())
            case "median":
                return x - torch.median(x, 1, True)[0]
            case "spectrum":
                return torch.fft.irfft(torch.fft.rfft(x, dim=1), 8, dim=1)
            case "pool":
                return x * F.adaptive_avg_pool1d(x.mT, 1).mT
            case "solve":
                return x @ torch.linalg.inv(x[0].mT @ x[0] + torch.eye(_WIDTH))
            case "write":
                x = x.clone()
                x[:, 1:].mul_(0.5)
                return x.add_(1.0)
            case "heads":
                q, k, v = (x[None].transpose(1, 2).contiguous() * i for i in (1.0, 0.5, 0.2))
                return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)[0]
            case _:
                return layer(x)


_NAMES = [
    "linear", "joined", "conv", "sequence", "conv1d", "point", "norm", "batch", "turned", "shifted",
    "same", "median", "spectrum", "pool", "solve", "write", "heads",
]  # fmt: skip


@pytest.mark.parametrize("name", available_passes())
@settings(
    max_examples=2, deadline=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(steps=st.lists(st.sampled_from(_NAMES), min_size=8, max_size=12))
def test_a_pass_alone_equals_eager(name: str, steps: list[str]) -> None:
    """Whatever stands in a program, and whichever passes did not run before; so does it twice."""
    torch.manual_seed(0)
    module = _Steps(steps).eval().requires_grad_(requires_grad=False)
    for layer in module.modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.running_mean.normal_()  # type: ignore[union-attr]
            layer.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    x = torch.randn(3, 8, _WIDTH)
    program = torch.export.export(module, (x,), strict=False).run_decompositions({})
    rewritten, _ = run_passes(program, [name])
    for inputs in (x, x.flip(0) * 3, torch.zeros_like(x)):
        got = rewritten.module()(inputs)
        torch.testing.assert_close(
            got, module(inputs), rtol=2e-3, atol=2e-4, msg=f"{steps}".__add__
        )
