"""Activations behind a convolution or a linear layer are part of its call, with eager's results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from transforms.passes.cpu.fuse_activations import FuseActivations

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "relu6": nn.ReLU6, "silu": nn.SiLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh,
    "hardswish": nn.Hardswish, "hardsigmoid": nn.Hardsigmoid, "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "hardtanh": lambda: nn.Hardtanh(-0.5, 0.25),
}  # fmt: skip


def _exported(module: nn.Module, *inputs: torch.Tensor) -> ExportedProgram:
    return torch.export.export(module.eval(), inputs)


def _targets(program: ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


class _General(nn.Module):
    def __init__(self, *, transposed: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, 1, 1))
        self._transposed = transposed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A convolution by the operator of all kinds, as graph passes write it."""
        geometry = ([1, 1], [0, 0], [1, 1], self._transposed, [0, 0], 1)
        return torch.ops.aten.convolution.default(x, self.weight, None, *geometry)


@pytest.mark.parametrize("name", _ACTIVATIONS)
@pytest.mark.parametrize("kind", ["convolution", "general", "sequence", "linear"])
def test_an_activation_goes_into_the_layer_before_it(name: str, kind: str) -> None:
    """One call is left, and torch's own fused kernel computes what the two computed."""
    torch.manual_seed(0)
    layer, shape = {
        "convolution": (nn.Conv2d(3, 8, 3, stride=2, padding=1, dilation=2), (2, 3, 9, 9)),
        "general": (_General(transposed=False), (2, 8, 5, 5)),
        "sequence": (nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2), (2, 4, 13)),
        "linear": (nn.Linear(9, 5), (2, 3, 9, 9)),
    }[kind]
    module = nn.Sequential(layer, _ACTIVATIONS[name]())
    image = torch.randn(shape)
    expected = module(image)
    fused, _ = FuseActivations()(_exported(module, image))
    [call] = [name for name in _targets(fused) if "squeeze" not in name]
    assert call.startswith("mkldnn._")
    with torch.no_grad():
        torch.testing.assert_close(fused.module()(image), expected, rtol=1e-5, atol=1e-5)


class _Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's result is read twice."""
        y = self.layer(x)
        return torch.relu(y) + y


class _Weighed(nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """A layer whose weight comes with the call."""
        return torch.relu(nn.functional.linear(x, weight))


class _InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's result is written before the activation reads it."""
        y = self.layer(x)
        y[:, 0] = 7.0
        return torch.relu(y)


@pytest.mark.parametrize("module", [_Twice(), _Weighed(), _InPlace()])
def test_a_layer_stays_alone_where_more_reads_it(module: nn.Module) -> None:
    """Read twice, weighed by an input, or written in between."""
    x = torch.randn(4, 4)
    inputs = (x, torch.randn(4, 4)) if isinstance(module, _Weighed) else (x,)
    program = _exported(module, *inputs)
    assert _targets(FuseActivations()(program)[0]) == _targets(program)


class _Row(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A layer whose weight is one row, so that its result lacks an axis."""
        return nn.functional.linear(x, self.weight)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (_Row(), (2, 3, 9)),
        (nn.Conv1d(3, 4, 3), (3, 9)),
        (nn.Conv3d(3, 4, 2), (1, 3, 4, 4, 4)),
        (nn.ConvTranspose2d(3, 4, 3), (2, 3, 9, 9)),
        (_General(transposed=True), (2, 8, 5, 5)),
        (nn.Conv2d(3, 4, 3), (3, 9, 9)),
        (nn.Linear(9, 4), (9,)),
        (nn.Linear(9, 4).double(), (2, 9)),
        (nn.Linear(9, 4).bfloat16(), (2, 9)),
    ],
)
def test_what_the_fused_kernels_do_not_take_is_left(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    """Other ranks, transposed convolutions, doubles and halves."""
    dtype = next(layer.parameters()).dtype
    program = _exported(nn.Sequential(layer, nn.ReLU()), torch.randn(shape, dtype=dtype))
    assert _targets(FuseActivations()(program)[0]) == _targets(program)


class _Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reads the convolution's memory as export saw it: row-major."""
        return torch.relu(self.layer(x)).as_strided((2, 4), (4, 1))


def test_memory_that_is_read_by_strides_keeps_its_layout() -> None:
    """A fused convolution's result would be channels-last."""
    program = _exported(_Strided(), torch.randn(1, 3, 5, 5))
    assert _targets(FuseActivations()(program)[0]) == _targets(program)


class _Overwritten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's rows change before its activation is taken."""
        rows = x.exp()
        made = self.layer(rows)
        rows.add_(1)
        return made.relu() + rows


def test_a_layer_is_not_computed_behind_a_write() -> None:
    """Its activation stays a call of its own, since the layer would read other rows there."""
    module, x = _Overwritten(), torch.randn(2, 4)
    fused, _ = FuseActivations()(_exported(module, x))
    with torch.no_grad():
        torch.testing.assert_close(fused.module()(x), module(x))
