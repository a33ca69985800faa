"""Residual branches of random weights: smaller than their trunk, and nothing else is touched."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from zoo.sources.random_weights import SHARE, SmallBranches, strengthen


class _Block(nn.Module):
    """A branch of two layers added to its input, as residual networks have it."""

    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        self.norm, self.first = nn.LayerNorm(width), nn.Linear(width, width)
        self.last = nn.Linear(width, width)
        nn.init.normal_(self.last.weight, std=gain * width**-0.5)

    def branch(self, x: Tensor) -> Tensor:
        made: Tensor = self.last(torch.relu(self.first(self.norm(x))))
        return made

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5 * self.branch(x)


def _shrunk(module: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad(), SmallBranches():
        made: Tensor = module(x)
    return made


def test_branch_is_a_share_of_its_trunk() -> None:
    """Only the last layer of a branch is scaled, as a whole, and the sum at hand is of it."""
    torch.manual_seed(0)
    block, x = _Block(64, gain=4.0), torch.randn(256, 64)
    stem = nn.Linear(64, 64)
    before = {name: value.clone() for name, value in block.state_dict().items()}
    found = _shrunk(nn.Sequential(stem, block), x)
    with torch.no_grad():
        trunk = stem(x)
        share = float((0.5 * block.branch(trunk)).std() / trunk.std())
        torch.testing.assert_close(found, block(trunk))
    assert math.isclose(share, SHARE, rel_tol=2**-8)
    factor = block.last.weight / before["last.weight"]
    torch.testing.assert_close(factor, factor[0, 0].expand_as(factor))
    torch.testing.assert_close(block.last.bias, before["last.bias"] * factor[0, 0])
    assert torch.equal(block.first.weight, before["first.weight"])


def test_small_branches_stay() -> None:
    """A branch that is small already is kept bit for bit."""
    torch.manual_seed(0)
    block = _Block(64, gain=0.01)
    nn.init.zeros_(block.last.bias)
    net = nn.Sequential(nn.Linear(64, 64), block)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    _shrunk(net, torch.randn(32, 64))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


class _Parallel(nn.Module):
    """A sum of equals, as embeddings and gates have it, and a learned offset: no branch."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)
        self.offset = nn.Parameter(torch.randn(1, 8, 1))

    def forward(self, x: Tensor) -> Tensor:
        both: Tensor = self.left(x) + self.right(x)
        return both + self.offset.squeeze(2).expand(both.shape)


def test_other_sums_stay() -> None:
    """Sums of results equally deep, and of a parameter, scale nothing."""
    torch.manual_seed(0)
    net = _Parallel()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    _shrunk(net, torch.randn(32, 8))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def _normed(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))


class _Deep(nn.Module):
    """Blocks of two normed layers each with ReLU behind their sums: ResNet's, without images."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Linear(width, width)
        made = (nn.Sequential(_normed(width), nn.ReLU(), _normed(width)) for _ in range(blocks))
        self.blocks = nn.ModuleList(made)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return x


def test_roundings_do_not_grow_from_block_to_block() -> None:
    """Weights of 24 blocks rounded to float16 leave 60 dB, of the 75 that one rounding does."""
    torch.manual_seed(0)
    net, x = _Deep(width=64, blocks=24).eval(), torch.randn(512, 64)
    strengthen(net, lambda: net(x))
    with torch.no_grad():
        exact = net(x)
        for parameter in net.parameters():
            parameter.copy_(parameter.half())
        error = net(x) - exact
    assert 20 * math.log10(float(exact.norm() / error.norm())) > 60


def test_what_a_call_keeps_is_put_back() -> None:
    """A buffer that calls write is as before: the state that an artifact begins with."""

    class Counting(nn.Module):
        count: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            self.count = self.count + 1
            return x + self.count

    module = Counting()
    first = module.count
    strengthen(module, lambda: module(torch.ones(2)))
    assert module.count is first
    assert torch.equal(first, torch.zeros(2))
