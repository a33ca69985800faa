"""Seeded random weights: repeatable, private, and such that every layer matters."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from zoo.errors import SourceError
from zoo.sources import load_library
from zoo.sources.random_weights import enliven

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.spec import ModelSpec

_FACTORY = {"kind": "factory", "builder": "a:b", "has_weights": False}


class _Net(nn.Module):
    """What libraries initialise in ways that compute nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, affine=False)
        self.scale = nn.Parameter(torch.full((4, 1), 1e-6))
        self.bias = nn.Parameter(torch.zeros(4))
        self.head = nn.Linear(4, 3, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.head(self.norm(x) * self.scale.squeeze(1) + self.bias)
        return scaled


def _net(spec: ModelSpec, seed: int) -> _Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = _Net().eval()
        enliven(net, spec, "m")
    return net


def test_constants_become_alive(make_spec: Callable[..., ModelSpec]) -> None:
    """Scales are gains around one, biases small, zero matrices of unit gain; seeds repeat."""
    spec = make_spec(_FACTORY, programs=[{"inputs": [{"name": "x", "shape": [64, 4]}]}])
    net, same, other = (_net(spec, seed).requires_grad_(requires_grad=False) for seed in (0, 0, 1))
    assert bool(((net.scale >= 0.5) & (net.scale <= 1.5)).all())
    assert 0 < float(net.bias.abs().max()) < 1
    assert 0.1 < float(net.head.weight.std()) < 1.5
    for a, b, c in zip(net.parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def _zeroed(*layers: nn.Module) -> nn.Module:
    for layer in layers:
        nn.init.zeros_(layer.weight)  # type: ignore[arg-type]
    return nn.Sequential(*layers).eval()


def _transformer() -> nn.Module:
    """ViT's head is zero, as vit_b_16's is; the rest is small."""
    load_library("torchvision")
    build = importlib.import_module("torchvision.models").VisionTransformer
    sizes = {"image_size": 8, "patch_size": 4, "hidden_dim": 8, "mlp_dim": 8, "num_classes": 5}
    module: nn.Module = build(num_layers=1, num_heads=2, **sizes).eval()
    return module


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (_transformer, [2, 3, 8, 8]),
        (lambda: _zeroed(nn.Conv2d(3, 1, 2, bias=False)), [2, 3, 8, 8]),
        (lambda: _zeroed(nn.Linear(4, 1, bias=False), nn.Linear(1, 1)), [2, 4]),
        (lambda: _zeroed(nn.ConvTranspose1d(4, 1, 1), nn.Conv1d(1, 1, 1)), [2, 4, 4]),
    ],
)
def test_no_head_stays_at_zero(
    make: Callable[[], nn.Module], shape: list[int], make_spec: Callable[..., ModelSpec]
) -> None:
    """Two inputs have two outputs, whatever its library initialises with zeros; seeds repeat."""
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        module = make()
        name = next(iter(inspect.signature(module.forward).parameters))
        inputs = [{"name": name, "shape": shape}]
        enliven(module, make_spec(_FACTORY, programs=[{"inputs": inputs}]), "m")
        with torch.no_grad():
            found.append((module(torch.ones(shape)), module(-torch.ones(shape))))
    assert float((found[0][0] - found[0][1]).abs().max()) > 1e-3
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def test_statistics_are_those_of_what_arrives(make_spec: Callable[..., ModelSpec]) -> None:
    """Mean and second moment of the sampled input, to the 8 bits that are kept."""
    sample = {"kind": "uniform", "low": 2.0, "high": 6.0}
    program = {"inputs": [{"name": "x", "shape": [8192, 4], "sample": sample}]}
    net = _net(make_spec(_FACTORY, programs=[program]), seed=0)
    mean, square = 4.0, 4.0**2 + 4.0**2 / 12
    assert net.norm.running_mean is not None
    assert net.norm.running_var is not None
    torch.testing.assert_close(net.norm.running_mean, torch.full((4,), mean), rtol=0.02, atol=0)
    torch.testing.assert_close(net.norm.running_var, torch.full((4,), square), rtol=0.02, atol=0)
    kept = net.norm.running_var
    assert torch.equal(kept, kept.to(torch.bfloat16).float())


def test_normed_signals_pass_a_relu(make_spec: Callable[..., ModelSpec]) -> None:
    """Batch norms' biases are about one: of noise that is normed, ReLU cuts a sixth, not half."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 64), nn.BatchNorm1d(64)).eval()
    program = {"inputs": [{"name": "input", "shape": [512, 4]}]}
    enliven(net, make_spec(_FACTORY, programs=[program]), "m")
    with torch.no_grad():
        cut = float((net(torch.randn(512, 4)) < 0).float().mean())
    assert 0.05 < cut < 0.25


def test_weak_matrices_get_unit_gain(make_spec: Callable[..., ModelSpec]) -> None:
    """A matrix drawn at a tenth of what keeps a signal alive is scaled, its pattern kept."""
    layer = nn.Linear(400, 300, bias=False)
    nn.init.normal_(layer.weight, std=0.005)
    before = layer.weight.detach().clone()
    inputs = [{"name": "input", "shape": [2, 400]}]
    enliven(layer, make_spec(_FACTORY, programs=[{"inputs": inputs}]), "m")
    after = layer.weight.detach()
    torch.testing.assert_close(after.std(), torch.tensor(400**-0.5))
    torch.testing.assert_close(after / after.std(), before / before.std())


def test_lively_parameters_stay(make_spec: Callable[..., ModelSpec]) -> None:
    """What the library drew well is kept bit for bit."""
    torch.manual_seed(3)  # a gain this side of the threshold
    layer = nn.Linear(4, 3)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    inputs = [{"name": "input", "shape": [2, 4]}]
    enliven(layer, make_spec(_FACTORY, programs=[{"inputs": inputs}]), "m")
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())


def test_entry_that_does_not_fit(make_spec: Callable[..., ModelSpec]) -> None:
    """An input the model refuses is reported as the entry's fault."""
    spec = make_spec(_FACTORY, programs=[{"inputs": [{"name": "y", "shape": [2, 4]}]}])
    with pytest.raises(SourceError, match=r"cannot be called as its entry says .*'y'.*takes x"):
        enliven(_Net().eval(), spec, "m")


_DIGEST = """
import hashlib
import sys
import torch
from zoo.manifest import load_manifest
from zoo.sources import load

torch.set_num_threads(int(sys.argv[1]))
manifest = load_manifest()
for name in sys.argv[2:]:
    origin = manifest.origins[name].file
    module = load(name, manifest.spec(name), origin=origin, random_weights=0,
                  allow_factories=False).module
    digest = hashlib.sha256()
    for _, value in sorted(module.state_dict().items()):
        digest.update(value.contiguous().numpy().tobytes())
    print(name, digest.hexdigest())
assert torch.get_num_threads() == int(sys.argv[1])
"""

# Each came out differently when its batch norm statistics were taken with all threads.
_WITH_STATISTICS = ("mobilenet_v3_small", "yolo_style", "parakeet_ctc_small")


@pytest.mark.sweep
def test_threads_do_not_show_in_the_weights() -> None:
    """In fresh processes with one and two threads, a seed gives the same bytes: the same key."""
    first, second = (
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _DIGEST, count, *_WITH_STATISTICS],
            capture_output=True, text=True, check=True,
        ).stdout
        for count in ("1", "2")
    )  # fmt: skip
    assert len(first.splitlines()) == len(_WITH_STATISTICS)
    assert first == second
