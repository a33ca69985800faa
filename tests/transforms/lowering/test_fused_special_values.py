"""Layers with an activation in their kernel give NaN and infinities as eager PyTorch does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import menagerie
from tests.pieces import assert_as_eager
from transforms import convert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from menagerie import Session

ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    F.relu,
    F.relu6,
    lambda x: F.hardtanh(x, -2.0, 0.5),
    lambda x: x.clamp(-1.0, 1.0),
    lambda x: x.clamp(min=0.0),
    F.hardsigmoid,
    F.hardswish,
    F.leaky_relu,
    F.silu,
    torch.sigmoid,
    torch.tanh,
    lambda x: F.gelu(x),  # noqa: PLW0108 - a test replaces it
    lambda x: F.gelu(x, approximate="tanh"),
)
_GELU = F.gelu
MANY = len(ACTIVATIONS)
GELU = MANY - 2
SPECIAL = {
    "zeros": 0.0,
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "large": 1e20,
    "small": 1e-30,
}


def _exact_gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return _GELU(x.double(), approximate=approximate).float()


class Layers(nn.Module):
    """Each kind of product with each activation; Winograd's algorithm and integers beside them."""

    def __init__(self) -> None:
        super().__init__()

        def make(kind: Callable[..., nn.Module], *sizes: int, **more: int) -> nn.ModuleList:
            return nn.ModuleList(kind(*sizes, **more) for _ in ACTIVATIONS)

        self.linear = make(nn.Linear, 8, 12)
        self.wide = make(nn.Conv2d, 4, 8, 3, padding=1)
        self.pointwise = make(nn.Conv2d, 4, 6, 1)
        self.depthwise = make(nn.Conv2d, 4, 4, 3, groups=4)
        self.sequence = make(nn.Conv1d, 4, 8, 3)
        self.lift = nn.Conv2d(4, 32, 1)
        self.winograd = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(3))
        self.narrow = nn.Linear(8, 4).half()  # few processors multiply them

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Of images [2, 4, 8, 8]."""
        groups = ((self.linear, x), (self.wide, x), (self.pointwise, x), (self.depthwise, x))
        made = []
        for layers, given in (*groups, (self.sequence, x.flatten(2))):
            made += [act(layer(given)) for act, layer in zip(ACTIVATIONS, layers, strict=True)]
        lifted = self.lift(x).repeat(1, 1, 3, 3)
        for layer, act in zip(self.winograd, ACTIVATIONS, strict=False):
            made.append(act(layer(lifted)))
        return (*made, self.narrow(x.half()).relu().float())


def _images() -> Tensor:
    return torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", params=["cpu", pytest.param("metal", marks=pytest.mark.sweep)])
def layers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Layers, Session]]:
    """The layers, and their artifact."""
    torch.manual_seed(0)
    module = Layers().eval()
    out = tmp_path_factory.mktemp("fused") / "bundle"
    bundle = convert(module, (_images(),), target=request.param, out=out, measure_seconds=0)
    with menagerie.open(bundle.folder, threads=2) as session:
        yield module, session


@pytest.mark.parametrize("whole", [False, True], ids=["one", "all"])
@pytest.mark.parametrize("name", SPECIAL)
def test_fused_activations_are_eagers(
    layers: tuple[Layers, Session], name: str, *, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A special value, alone among ordinary ones or everywhere, gives what eager PyTorch gives."""
    monkeypatch.setattr(F, "gelu", _exact_gelu)
    module, session = layers
    images = _images()
    images[... if whole else (1, 2, 3, 4)] = SPECIAL[name]
    with torch.no_grad():
        expected = module(images)
    found = session.run({session.inputs[0].name: images.numpy()})
    for at, (eager, artifact) in enumerate(zip(expected, found.values(), strict=True)):
        if at >= 5 * MANY and not math.isfinite(SPECIAL[name]):
            # Winograd's tiles spread what is no number farther (docs/special-values.md).
            assert not np.isfinite(artifact[~np.isfinite(eager.numpy())]).any()
            continue
        known = eager.numpy()
        if at % MANY == GELU:  # of infinity it may be NaN with AVX-512 (the same document)
            known = np.where(np.isnan(artifact) & (known == np.inf), np.nan, known)
        scale = np.abs(known[np.isfinite(known)]).max(initial=1.0)
        np.testing.assert_allclose(artifact, known, rtol=1e-3, atol=1e-5 * scale, err_msg=str(at))


def test_the_next_run_is_ordinary_again(layers: tuple[Layers, Session]) -> None:
    """What a run has met does not slow down or change the one behind it."""
    module, session = layers
    name = session.inputs[0].name
    before = session.run({name: _images().numpy()})
    session.run({name: np.full((2, 4, 8, 8), math.nan, np.float32)})
    after = session.run({name: _images().numpy()})
    with torch.no_grad():
        expected = module(_images())
    for first, last, eager in zip(before.values(), after.values(), expected, strict=True):
        np.testing.assert_array_equal(first, last)
        np.testing.assert_allclose(last, eager.numpy(), rtol=1e-3, atol=1e-4)


def test_a_sigmoid_comes_to_zero_where_eagers_does(tmp_path: Path) -> None:
    """Its logarithm shows every number that is no zero; behind a product and a convolution."""
    linear, convolution = nn.Linear(12, 12, bias=False), nn.Conv2d(12, 12, 1, bias=False)
    for layer in (linear, convolution):
        nn.init.eye_(layer.weight.data.view(12, 12))
    module = nn.Module()
    module.layers = nn.ModuleList((linear, convolution))
    module.forward = lambda x: [
        linear(x).sigmoid().log(), 1 / linear(x).sigmoid(), F.silu(linear(x)),
        convolution(x.mT[None, :, :, None]).sigmoid().log(),
    ]  # fmt: skip
    x = torch.diag(torch.tensor([-1e29, -200, -104, -90, -88.5, -88, -87, 0, 1, 88, 90, 1e29]))
    convert(module.eval(), (torch.randn(12, 12),), out=tmp_path / "b", measure_seconds=0)
    assert_as_eager(tmp_path / "b", module.forward, (x,), rtol=1e-5, atol=1e-6)


def test_a_sigmoid_behind_any_convolution_keeps_a_nan(tmp_path: Path) -> None:
    """One of groups, strides and dilation goes to a kernel whose sigmoid computes no vectors."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(16, 30, (3, 5), stride=3, padding=2, dilation=3, groups=2)
    module = nn.Sequential(convolution, nn.Sigmoid()).eval()
    x = torch.randn(3, 16, 11, 9)
    convert(module, (x,), out=tmp_path / "b", measure_seconds=0)
    odd = x.clone()
    odd[1, 3] = math.nan
    assert_as_eager(tmp_path / "b", module, (x,), (odd,), (x,), rtol=1e-4, atol=1e-5)
