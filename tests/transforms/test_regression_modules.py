"""Modules that other converters got wrong, through every pass: eager's numbers come out.

What each pass must do with its own kind is in the pass's tests; here every pass meets the
kinds of all the others, alone and in every target's list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from torch import nn
from torch.nn import functional as F

from transforms import available_passes, run_passes
from transforms.pipeline import passes_in
from transforms.targets import PassItem, all_targets
from zoo.precision import WeightPrecision
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

aten = torch.ops.aten
quantized = torch.ops.quantized_decomposed

_ALONE: dict[str, tuple[PassItem, ...]] = {name: (name,) for name in available_passes()}
_TOGETHER: dict[str, tuple[PassItem, ...]] = {
    "fuse_cat_linear, no gate": (PassChoice(name="fuse_cat_linear", options={"gate": "open"}),),
    **{f"general, {name}": target.general_passes for name, target in all_targets().items()},
    **{f"default, {name}": passes_in(WeightPrecision(), None, name) for name in all_targets()},
}


# The lists that targets have run always, and each pass by itself in the sweep.
_LISTS = pytest.mark.parametrize(
    "lists",
    [
        pytest.param(_TOGETHER, id="together"),
        pytest.param(_ALONE, id="alone", marks=pytest.mark.sweep),
    ],
)


class _Module(nn.Module):
    """Weights of all shapes that the bodies use; equal sizes on purpose."""

    def __init__(self, body: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = body
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)
        self.bare = nn.Linear(6, 6, bias=False)
        self.thrice, self.many = nn.Linear(18, 6), nn.Linear(36, 6)
        self.rows = nn.Linear(12, 6)
        self.wide = nn.Linear(2400, 6)
        self.conv, self.norm = nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)
        self.layer_norm = nn.LayerNorm(6)
        self.square = nn.Parameter(torch.randn(6, 6))
        self.vector = nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(self, x)


def _rows(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _image(rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    batch, _, height, width = like.shape
    return rows.view(batch, height, width, -1).permute(0, 3, 1, 2)


def _split_cat(m: Any, x: torch.Tensor) -> torch.Tensor:
    first, *others = aten.split_copy.Tensor(m.conv(x), 2, 1)
    return m.conv(torch.cat([others[1], first, others[0]], 1))


def _attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (layer(x).unflatten(-1, (2, 3)).transpose(1, 2) for layer in (m.one, m.two, m.bare))
    return m.one(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)) + x


def _fake(x: torch.Tensor, scale: float) -> torch.Tensor:
    levels = quantized.quantize_per_tensor.default(x, scale, 0, -128, 127, torch.int8)
    return quantized.dequantize_per_tensor.default(levels, scale, 0, -128, 127, torch.int8)


def _quantised_linear(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = F.relu(F.linear(_fake(x, 0.1), _fake(m.one.weight, 0.01), m.one.bias))
    return F.linear(_fake(y, 0.1), _fake(m.two.weight, 0.01)) + m.vector


def _quantised_per_channel(m: Any, x: torch.Tensor) -> torch.Tensor:
    scales, zeros = torch.full((6,), 0.01), torch.zeros(6, dtype=torch.int64)
    how = (scales, zeros, 0, -128, 127, torch.int8)
    levels = quantized.quantize_per_channel.default(m.conv.weight, *how)
    weight = quantized.dequantize_per_channel.default(levels, *how)
    return _fake(m.norm(F.conv2d(_fake(x, 0.1), weight, m.conv.bias)), 0.1)


_IMAGE, _TOKENS, _MATRIX = (2, 6, 5, 5), (1, 5, 6), (4, 6)

_MODULES: dict[str, tuple[Callable[[Any, torch.Tensor], Any], tuple[int, ...]]] = {
    "addmm": (lambda m, x: torch.addmm(m.vector, x, m.square).relu(), _MATRIX),
    "addmm, factors": (lambda m, x: torch.addmm(x[0], x, m.square, beta=2, alpha=0.5), _MATRIX),
    "split_cat": (_split_cat, _IMAGE),
    "linear_bias_batch1": (lambda m, x: m.two(F.relu(m.one(x))), (1, 6)),
    "linear of a vector": (lambda m, x: m.one(x), (6,)),
    "unsqueezed matmul": (
        lambda m, x: (torch.matmul(x.unsqueeze(0), m.square) + m.vector).squeeze(0), _MATRIX,
    ),
    "pointwise NCHW": (lambda m, x: _image(m.two(F.gelu(m.one(_rows(x)), approximate="tanh")), x), _IMAGE),  # noqa: E501
    "pointwise NCHW, norm": (
        lambda m, x: x + m.one(m.layer_norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2), _IMAGE,
    ),
    "pointwise NHWC": (
        lambda m, x: m.one(x.permute(0, 3, 1, 2).flatten(2).transpose(1, 2)).view(x.shape),
        (2, 5, 5, 6),
    ),
    "pointwise transformer": (lambda m, x: m.one(x.transpose(1, 2).transpose(1, 2)), _TOKENS),
    "attention": (_attention, _TOKENS),
    "gather": (lambda m, x: _image(m.one(_rows(x)[torch.arange(49, -1, -1)]), x), _IMAGE),
    "spatial mixing": (lambda m, x: m.one(x).transpose(2, 3), (2, 6, 6, 6)),
    "square, transposed": (lambda m, x: m.one(x.transpose(1, 3)).transpose(2, 3), (2, 6, 6, 6)),
    "folded norm": (lambda m, x: F.relu(m.norm(m.conv(x))), _IMAGE),
    "cat of 3": (lambda m, x: m.thrice(torch.cat([x, m.one(x), x], -1)), _MATRIX),
    "cat of too many": (lambda m, x: m.many(torch.cat([m.one(x)] * 6, -1)), _MATRIX),
    "cat too narrow": (lambda m, x: m.one(torch.cat([x[:, :1], x[:, 1:]], -1)), _MATRIX),
    "cat too wide": (lambda m, x: m.wide(torch.cat([x, x.flip(0)], -1)), (4, 1200)),
    "cat of products": (lambda m, x: m.rows(torch.cat([x * 2, x * m.vector], -1)), _MATRIX),
    "cat along rows": (lambda m, x: m.one(torch.cat([x, m.two(x)], 0)), _MATRIX),
    "cat along a square's rows": (lambda m, x: m.one(torch.cat([x[:3], m.two(x[3:])], 0)), (6, 6)),
    "cat of unequal rows": (lambda m, x: m.one(torch.cat([x, m.two(x[:1])], 0)), _MATRIX),
    "cat with another user": (
        lambda m, x: m.rows(y := torch.cat([x, m.one(x)], -1)) + y[:, :6], _MATRIX,
    ),
}  # fmt: skip

_QUANTISED: dict[str, tuple[Callable[[Any, torch.Tensor], Any], tuple[int, ...]]] = {
    "linear-relu": (_quantised_linear, _MATRIX),
    "linear-relu, batch 1": (_quantised_linear, (1, 6)),
    "linear-relu of an image": (
        lambda m, x: _quantised_linear(m, x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), _IMAGE,
    ),
    "convolution and norm, by channel": (_quantised_per_channel, _IMAGE),
    "cat": (lambda m, x: F.linear(torch.cat([_fake(x, 0.1), x], -1), _fake(m.rows.weight, 0.01)), _MATRIX),  # noqa: E501
    "one scale twice": (lambda m, x: m.one(_fake(x, 0.1)) + m.two(_fake(x, 0.1)), _MATRIX),
}  # fmt: skip


def _input(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def _spellings(module: nn.Module, x: torch.Tensor) -> list[Any]:
    """As exported, functional with composite operators kept, and core ATen."""
    exported = torch.export.export(module, (x,), strict=False)
    return [exported, exported.run_decompositions({}), exported.run_decompositions()]


def _conversions(program: Any) -> int:
    return sum("quantize_per" in str(n.target) for n in program.graph.nodes)


# Eager's own body of oneDNN's fused calls takes bfloat16 on newer processors alone; ours always.
_FUSED = {"fuse_activations", "default, cpu"}


def _check(
    module: nn.Module,
    x: torch.Tensor,
    spellings: Sequence[Any],
    tolerance: dict[str, float],
    lists: dict[str, tuple[PassItem, ...]],
    *,
    without: Collection[str] = (),
) -> None:
    with torch.no_grad():
        expected = module(x.clone())
    for program in spellings:
        results: list[tuple[str, Any]] = [
            (name, run_passes(program, passes)[0])
            for name, passes in lists.items()
            if name not in without
        ]
        for name, result in results:
            if result is program:
                continue
            torch.testing.assert_close(
                result.module()(x.clone()), expected, **tolerance, msg=lambda m, n=name: f"{n}: {m}"
            )
            assert _conversions(result) == _conversions(program), name


@_LISTS
@pytest.mark.parametrize("case", _MODULES)
def test_every_pass_keeps_the_numbers(case: str, lists: dict[str, tuple[PassItem, ...]]) -> None:
    """In each spelling, after each pass and list: eager's values, shape and dtype."""
    body, shape = _MODULES[case]
    module, x = _Module(body).eval(), _input(shape)
    _check(module, x, _spellings(module, x), {"rtol": 1e-4, "atol": 1e-5}, lists)


_HALF = ("addmm, factors", "linear_bias_batch1", "pointwise NCHW, norm", "folded norm", "cat of 3")


@_LISTS
@pytest.mark.parametrize("case", _HALF)
def test_every_pass_keeps_bfloat16(case: str, lists: dict[str, tuple[PassItem, ...]]) -> None:
    """The result stays bfloat16, within a few of its own roundings of eager."""
    body, shape = _MODULES[case]
    module, x = _Module(body).eval().to(torch.bfloat16), _input(shape).to(torch.bfloat16)
    spelt, close = _spellings(module, x)[1:2], {"rtol": 0.05, "atol": 0.05}
    _check(module, x, spelt, close, lists, without=_FUSED)


@_LISTS
@pytest.mark.parametrize("case", _QUANTISED)
def test_every_pass_leaves_quantised_graphs_unharmed(
    case: str, lists: dict[str, tuple[PassItem, ...]]
) -> None:
    """No conversion to or from integers is lost, doubled or moved; numbers are eager's.

    A value moved across a conversion would be rounded to another level: off by a whole scale.
    """
    body, shape = _QUANTISED[case]
    module, x = _Module(body).eval(), _input(shape)
    _check(module, x, _spellings(module, x), {"rtol": 1e-5, "atol": 1e-6}, lists)


def _part(m: Any, x: torch.Tensor) -> Sequence[torch.Tensor]:
    return aten.split_copy.Tensor(x, 2, 1)


def test_parts_that_are_returned_stay_apart() -> None:
    """A split that the caller gets as copies: writing one part changes no other and no input."""
    x = torch.zeros(_IMAGE)
    for program in _spellings(_Module(_part).eval(), x):
        for passes in (_ALONE | _TOGETHER).values():
            given = x.clone()
            first, *others = run_passes(program, passes)[0].module()(given)
            first += 1
            assert all(not t.any() for t in (given, *others))
