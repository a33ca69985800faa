"""Lowered for Metal and run on the emulated device: what others got wrong comes out as eager's.

All pieces go through one program a dtype, since compiling costs more than running; each has an
input and an output of its own, and a test that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from tests.pieces import Apply, assert_as_eager, run_piece
from transforms import convert
from transforms.lowering.metal_codegen import MetalFunctions
from transforms.pipeline import run_passes
from zoo.errors import LoweringError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

aten = torch.ops.aten


class _Weights(nn.Module):
    """Everything that the pieces multiply by."""

    def __init__(self) -> None:
        super().__init__()
        self.square, self.bare = nn.Linear(16, 16), nn.Linear(16, 16, bias=False)
        self.narrow, self.wide = nn.Linear(16, 8), nn.Linear(8, 24)
        self.dense = nn.Conv2d(16, 16, 3, padding=1)
        self.grouped = nn.Conv2d(16, 32, 3, groups=4, stride=2)
        self.depthwise = nn.Conv2d(16, 16, 5, groups=16, padding=2)
        self.dilated = nn.Conv2d(16, 8, 3, dilation=2, bias=False)
        self.pointwise = nn.Conv2d(32, 16, 1)
        self.up = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)
        self.line = nn.Conv1d(16, 8, 3, padding=1)
        self.volume = nn.Conv3d(4, 6, (2, 3, 3), stride=(2, 1, 1), padding=1, groups=2)
        self.norm, self.group_norm = nn.LayerNorm(16), nn.GroupNorm(4, 16)
        self.sppf_in, self.sppf_out = nn.Conv2d(16, 8, 1), nn.Conv2d(32, 16, 1)
        self.matrix = nn.Parameter(torch.randn(16, 12))
        self.table = nn.Embedding(20, 16)
        self.odd, self.odd_bare = nn.Linear(7, 101), nn.Linear(7, 101, bias=False)
        self.line_bare = nn.Conv1d(16, 6, 3, padding=1, bias=False)
        self.line_wide = nn.Conv1d(80, 96, 3, padding=1)
        self.batch_norm = nn.BatchNorm2d(16)
        for each in (self.batch_norm.running_mean, self.batch_norm.bias):
            nn.init.normal_(each)
        for each in (self.batch_norm.running_var, self.batch_norm.weight):
            nn.init.uniform_(each, 0.5, 2)
        # Queries, keys and values as a projection leaves them: places before heads.
        self.projected = nn.Parameter(torch.randn(3, 2, 40, 4, 24))


def _split_cat(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    first, *others = aten.split_copy.Tensor(w.dense(x), 4, 1)
    return w.dense(torch.cat([others[2], first, others[0], others[1]], 1))


def _classifier(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    """MobileNetV3's: pooled to a vector, two products, a hard swish between."""
    return w.wide(F.hardswish(w.narrow(F.adaptive_avg_pool2d(x, 1).flatten(1))))


def _sppf(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    """YOLO's pyramid: three poolings in a row, joined."""
    maps = [w.sppf_in(x)]
    for _ in range(3):
        maps.append(F.max_pool2d(maps[-1], 5, 1, 2))
    return F.silu(w.sppf_out(torch.cat(maps, 1)))


def _neck(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    """Upsampled to its neighbour's size, joined, and split again."""
    small = F.max_pool2d(x, 2)
    left, right = w.pointwise(torch.cat([F.interpolate(small, scale_factor=2), x], 1)).chunk(2, 1)
    return torch.cat([left, right + left], 1)


def _boxes(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    """Distribution focal loss at inference: the mean of 4 distributions over 4 bins."""
    bins = x.flatten(2).unflatten(1, (4, 4)).softmax(2)
    return (bins * torch.arange(4, dtype=x.dtype).view(1, 1, 4, 1)).sum(2)


def _attention(w: _Weights, x: torch.Tensor, **options: Any) -> torch.Tensor:
    q, k, v = (m(x).unflatten(-1, (4, 4)).transpose(1, 2) for m in (w.square, w.bare, w.square))
    out = F.scaled_dot_product_attention(q, k, v, **options)
    return w.bare(out.transpose(1, 2).flatten(2)) + x


def _by_hand(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    """Attention as nn.MultiheadAttention writes it; Inductor knows the pattern."""
    q, k, v = (m(x).unflatten(-1, (4, 4)).transpose(1, 2) for m in (w.square, w.bare, w.square))
    q, k, v = (t.reshape(4, 5, 4) for t in (q, k, v))
    out = torch.bmm((q * 0.5).bmm(k.transpose(1, 2)).softmax(-1), v)
    return w.bare(out.transpose(0, 1).reshape(1, 5, 16))


def _masked(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    keep = torch.arange(5) < 3
    return _attention(w, x, attn_mask=keep[None, None, None, :])


def _written_view(_: _Weights, x: torch.Tensor) -> torch.Tensor:
    """A view at an offset, read after its base was written."""
    base = x.clone()
    view = base[1:, 2:9]
    base.mul_(3)
    return view + base[:-1, 7:14]


def _strided(w: _Weights, x: torch.Tensor, **options: Any) -> torch.Tensor:
    """Attention over parameters read by strides of their own, as many queries as `x` has."""
    sizes, strides = (2, 4, 40, 24), (40 * 4 * 24, 24, 4 * 24, 1)
    q, k, v = (part.as_strided(sizes, strides, part.storage_offset()) for part in w.projected)
    return F.scaled_dot_product_attention(q[:, :, : x.shape[2]], k, v, **options) + x


def _decoding(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    """One query, all keys, and a mask that hides nothing."""
    return _strided(w, x, attn_mask=torch.zeros(1, 1, 1, 40, dtype=x.dtype), scale=1.0)


def _grouped_attention(w: _Weights, x: torch.Tensor) -> torch.Tensor:
    k, v = w.projected[:2, :, :, :2].transpose(2, 3)
    return F.scaled_dot_product_attention(x, k, v, enable_gqa=True)


def _rarer_functions(_: _Weights, x: torch.Tensor) -> torch.Tensor:
    """Those of numbers that torch's generator of shaders lacks."""
    one = torch.logical_xor(x > 0, x.flip(1) > 0.5)
    curves = torch.stack([x.sinh(), x.cosh(), x.asinh(), (1 + x.abs()).acosh()])
    return torch.copysign(curves, x.flip(0)) * one


def _gated_delta_rule(_: _Weights, x: torch.Tensor) -> torch.Tensor:
    """Linear attention whose state forgets, and is mended by what it predicted wrongly.

    S' = exp(g) S; S = S' + beta k (v - k S'); o = q S, one place after the other (Yang, Kautz and
    Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464).
    """
    q, k, v = F.normalize(x[..., :8], dim=-1), F.normalize(x[..., 8:16], dim=-1), x[..., 16:22]
    forget, beta = -F.softplus(x[..., 22]), x[..., 23].sigmoid()
    state = x.new_zeros(*x.shape[:2], 8, 6)
    places = []
    for t in range(x.shape[2]):
        state = state * forget[:, :, t, None, None].exp()
        wrong = v[:, :, t] - (k[:, :, t, None] @ state)[:, :, 0]
        state = state + k[:, :, t, :, None] * (beta[:, :, t, None] * wrong)[:, :, None]
        places.append((q[:, :, t, None] @ state)[:, :, 0])
    return torch.stack(places, 2)


_IMAGE, _TOKENS, _ROWS = (2, 16, 8, 8), (1, 5, 16), (4, 16)

_PIECES: dict[str, tuple[Callable[[_Weights, torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "addmm": (lambda w, x: torch.addmm(w.matrix[0], x, w.matrix), _ROWS),
    "addmm, factors": (lambda w, x: torch.addmm(x[:, :12], x, w.matrix, beta=2, alpha=0.5), _ROWS),
    "product of views": (lambda w, x: x.t()[3:7] @ w.square.weight[2:6], _ROWS),
    "split_cat": (_split_cat, _IMAGE),
    "linear_bias_batch1": (lambda w, x: w.narrow(F.relu(w.square(x))), (1, 16)),
    "linear of a vector": (lambda w, x: w.square(x), (16,)),
    "mobilenet_v3 classifier": (_classifier, (1, 16, 8, 8)),
    "grouped convolution": (lambda w, x: w.grouped(x), _IMAGE),
    "depthwise convolution": (lambda w, x: F.hardswish(w.depthwise(x)), _IMAGE),
    "dilated convolution": (lambda w, x: w.dilated(x), _IMAGE),
    "transposed convolution": (lambda w, x: w.up(x), _IMAGE),
    "convolution in 1-D": (lambda w, x: w.line(x.transpose(1, 2)), _TOKENS),
    "convolution of a volume": (lambda w, x: w.volume(x), (2, 4, 5, 8, 8)),
    "channels-last convolution": (
        lambda w, x: w.dense(x.contiguous(memory_format=torch.channels_last)), _IMAGE,
    ),
    "convolution of a slice": (lambda w, x: w.dense(x[:, :, 1:7, ::2]), _IMAGE),
    "yolo sppf": (_sppf, _IMAGE),
    "yolo neck": (_neck, _IMAGE),
    "yolo boxes": (_boxes, _IMAGE),
    "attention": (_attention, _TOKENS),
    "causal attention": (lambda w, x: _attention(w, x, is_causal=True), _TOKENS),
    "masked attention": (_masked, _TOKENS),
    "attention by hand": (_by_hand, _TOKENS),
    "norms": (lambda w, x: w.group_norm(w.norm(x.transpose(1, 3)).transpose(1, 3)), _IMAGE),
    "long softmax": (lambda _, x: (x * 3).softmax(-1), (2, 3000)),
    "long mean": (lambda _, x: x.mean(-1) + x.amax(-1), (3, 2500)),
    "offset view after a write": (_written_view, _ROWS),
    "view with gaps": (lambda _, x: F.gelu(x[:, 1:5, ::2]) + x[:, 5:9, 1::2], _IMAGE),
    "flipped and transposed": (lambda _, x: x.flip(1).transpose(0, 1).sigmoid(), _ROWS),
    "table": (lambda w, x: w.table((x.abs() * 4).long().clamp(0, 19)).sum(1), _ROWS),
    "running sum": (lambda _, x: x.cumsum(-1), _ROWS),
    "sorted": (lambda _, x: x.sort(-1, descending=True)[0], _ROWS),
    "five largest": (lambda _, x: torch.cat([v.float() for v in x.topk(5, -1)], 1), _ROWS),
    "wide pooling": (lambda _, x: F.avg_pool2d(x, 7, 1, 3), _IMAGE),
    "uneven pooling": (lambda _, x: F.adaptive_avg_pool2d(x, 3), _IMAGE),
    "baddbmm": (
        lambda _, x: torch.baddbmm(x[:, :, :5], x, x.mT[..., :5], beta=0.5, alpha=2), (2, 8, 8),
    ),
    "scattered sum": (
        lambda _, x: torch.zeros_like(x).scatter_add(1, (x.abs() * 4).long().clamp(0, 15), x),
        _ROWS,
    ),
    "sum of two": (lambda _, x: x + x[:1].flip(1), _ROWS),
    "product of two": (lambda _, x: x.mm(x.t()), _ROWS),
    "product with a parameter": (lambda w, x: x.mm(w.matrix), _ROWS),
    "odd linear": (lambda w, x: w.odd(x), (127, 7)),
    "odd linear without bias": (lambda w, x: w.odd_bare(x), (127, 7)),
    "convolution in 1-D without bias": (lambda w, x: w.line_bare(x), (1, 16, 5)),
    "wide convolution in 1-D": (lambda w, x: w.line_wide(x), (1, 80, 150)),
    "convolutions in 1-D of a batch": (lambda w, x: w.line_wide(x), (10, 80, 31)),
    "batch norm": (lambda w, x: w.batch_norm(x), _IMAGE),
    "batch norm behind a depthwise convolution": (
        lambda w, x: w.batch_norm(w.depthwise(x)).relu(), _IMAGE,
    ),
    "attention by strides": (_strided, (2, 4, 40, 24)),
    "attention by strides, causal": (
        lambda w, x: _strided(w, x, is_causal=True), (2, 4, 33, 24),
    ),
    "attention of one query": (lambda w, x: _strided(w, x, scale=1.0), (2, 4, 1, 24)),
    "attention of one query, mask": (_decoding, (2, 4, 1, 24)),
    "attention of grouped heads": (_grouped_attention, (2, 4, 5, 24)),
    "attention of grouped heads, one query": (_grouped_attention, (2, 4, 1, 24)),
    "gated delta rule": (_gated_delta_rule, (2, 2, 4, 24)),
    "rarer functions": (_rarer_functions, _ROWS),
    "comparisons": (lambda _, x: torch.where((x > 0) & (x < 1), x, -x).clamp(-2, 2), _ROWS),
}  # fmt: skip


class _Everything(nn.Module):
    """All pieces side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = _Weights()

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """A result for each input, in the order of the pieces."""
        bodies = [body for body, _ in _PIECES.values()]
        return tuple(body(self.weights, x) for body, x in zip(bodies, inputs, strict=True))


Results = dict[str, tuple[torch.Tensor, torch.Tensor]]


def _run(dtype: torch.dtype) -> Results:
    """What the emulated device gives, and what eager gives in the same dtype."""
    torch.manual_seed(5)
    module = _Everything().eval().to(dtype)
    inputs = tuple(torch.randn(shape).to(dtype) for _, shape in _PIECES.values())
    with torch.no_grad():
        program = torch.export.export(module, inputs, strict=False).run_decompositions({})
        program, _ = run_passes(program, target="metal")
        eager = module(*inputs)
    found = run_piece(program, inputs, target="metal")
    return dict(zip(_PIECES, zip(found, eager, strict=True), strict=True))


@pytest.fixture(scope="module")
def single() -> Results:
    """Of float32."""
    return _run(torch.float32)


@pytest.fixture(scope="module", params=[torch.float16, torch.bfloat16], ids=str)
def half(request: pytest.FixtureRequest) -> Results:
    """Of a dtype with 16 bits."""
    return _run(request.param)


@pytest.mark.parametrize("piece", _PIECES)
def test_float32_is_within_1e_4_of_eager(single: Results, piece: str) -> None:
    """Each element of the piece's result."""
    found, expected = single[piece]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.sweep
@pytest.mark.parametrize("piece", _PIECES)
def test_half_precision_is_within_1e_2_of_eager(half: Results, piece: str) -> None:
    """Each element of the piece's result, absolutely where it is small, relatively where not."""
    found, expected = half[piece]
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=1e-2)


class _Places(nn.Module):
    """Words with a learned vector for each place, as most text models begin."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 32), nn.Embedding(64, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """A row for each word."""
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))


def test_places_of_a_dynamic_length_are_looked_up() -> None:
    """Nothing is read or written by a place but the check that the table has it."""
    module, ids = _Places().eval(), torch.randint(0, 100, (3, 11))
    sizes = {0: Dim("batch", max=4), 1: Dim("length", max=24)}
    program = torch.export.export(module, (ids,), dynamic_shapes=(sizes,), strict=False)
    [found] = run_piece(program.run_decompositions({}), (ids,), target="metal")
    torch.testing.assert_close(found, module(ids), atol=0, rtol=0)


class _Lengths(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Use numbers that Python computes from a length."""
        n = x.shape[2]
        scaled = x * n**-0.5, F.interpolate(x, scale_factor=1.7)
        places = torch.arange(n)
        parts = torch.div(places * 10**7, -(places + 2), rounding_mode="trunc")
        return x + round(n * 0.35), *scaled, x.roll(n // 3), places * 10**7 % 97, parts


def test_numbers_of_a_length_are_wide(tmp_path: Path) -> None:
    """A shader's float would round 690 * 0.35 up, and its int not hold 690 * 10**7."""
    x, sizes, out = torch.randn(1, 3, 690), [{2: Dim("n", min=2, max=700)}], tmp_path / "out"
    convert(_Lengths(), (x[..., :11],), target="metal", out=out, dynamic_shapes=sizes)
    assert_as_eager(out, _Lengths(), (x,), rtol=1.3e-6, atol=1e-5)


class _Quotients(nn.Module):
    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Take the whole part of quotients by constants, one of them of a sum by a product."""
        ones = torch.ones(1, rows.shape[1])
        return torch.floor(x / 0.1), (x / 41).long(), F.linear(rows, ones) / 41 == 1


def test_what_a_constant_divides_is_divided(tmp_path: Path) -> None:
    """A product with the reciprocal is 0.99999994 for 41 / 41, and 13 for 1.3 / 0.1."""
    out, given = tmp_path / "out", (torch.randn(81), torch.randn(3, 41))
    convert(_Quotients(), given, target="metal", out=out, measure_seconds=0)
    given = torch.cat([torch.arange(-40, 40) / 10, torch.tensor([41.0])]), torch.ones(3, 41)
    assert_as_eager(out, _Quotients(), given, rtol=1.3e-6, atol=1e-5)


class _Sums(nn.Module):
    def forward(self, numbers: torch.Tensor, marks: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Of values among which no NaN can be, and of those that a constant takes the place of."""
        small = torch.where(numbers < 2, 0, numbers)
        return torch.nansum(numbers, 1), torch.nansum(marks), torch.nansum(small), small


def test_no_integer_is_nan(tmp_path: Path) -> None:
    """Shaders that ask it of integers and bool compile; none of 64 bits loses half of them."""
    given = torch.arange(600).reshape(2, 300) << 40, torch.tensor([True, False, True])
    convert(_Sums(), given, target="metal", out=tmp_path / "out", measure_seconds=0)


def _repeated(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Reduce rows of one number each, beside rows of many."""
    many, ones = x[:, :1].expand(2, x.shape[1]), x[:, :1].expand(2, 1025)
    positive = (x > 0) & (x > 2).any(1, keepdim=True)
    return many.sum(1), many.amax(1) + x.sum(1), many.sign().prod(1), ones.mean(1), positive.sum(1)


def test_a_repeated_number_counts_as_often_as_it_is_repeated(tmp_path: Path) -> None:
    """In rows of more numbers than a group has threads, which need no place to read them."""
    x, sizes, out = torch.randn(2, 5), ({1: Dim("n", max=3000)},), tmp_path / "out"
    convert(Apply(_repeated), (x,), target="metal", out=out, dynamic_shapes=sizes)
    rows = [(torch.randint(-3, 4, (2, n)).float(),) for n in (1, 33, 1024, 1025, 3000)]
    assert_as_eager(out, _repeated, *rows)


def test_code_that_cannot_be_generated_leaves_the_next_as_it_is(tmp_path: Path) -> None:
    """Though its kernel fails within a loop over a row."""
    how: dict[str, Any] = {"target": "metal", "measure_seconds": 0}
    with patch.object(MetalFunctions, "sinh", int), pytest.raises(LoweringError, match="sinh"):
        convert(Apply(lambda x: x.sinh().sum()), (torch.ones(2000),), out=tmp_path / "a", **how)
    convert(Apply(lambda x: x.exp().sum()), (torch.ones(2000),), out=tmp_path / "b", **how)


class _Ends(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Of integers that overflow, and of sums in narrow ones, as rows of no whole words."""
        kept = [x.to(t) for t in (torch.int16, torch.int8, torch.uint8)] + [(x % 9).half()]
        rows = torch.tensor([2, 2, 1, 2, 1, 0, 0, 2])
        sums = [n.sum(0, dtype=n.dtype) for n in kept]
        sums += [n[:3].scatter_reduce(0, rows, n, k) for n in kept for k in ("sum", "mean")]
        sums += [n[:3].index_put((rows,), n, accumulate=True) for n in kept]
        wide = (x + x).long().clamp(min=-1 << 63)
        return x.abs() % 5, -x // 3, (x * x).sum(), wide, *sums, kept[0].abs() % 5


def test_integers_wrap_around_at_their_ends(tmp_path: Path) -> None:
    """As eager's, also where a compiler could take it that none does."""
    lowest, highest = torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max
    x = torch.tensor([lowest, lowest + 1, -32768, -7, 0, 300, 1 << 20, highest], dtype=torch.int32)
    convert(_Ends(), (x,), target="metal", out=tmp_path / "out", measure_seconds=0)
    assert_as_eager(tmp_path / "out", _Ends(), (x,))


class _Wrapped(nn.Module):
    """Eager wraps around on this machine's processor where Apple's GPUs saturate."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 10).to(torch.uint8)


class _Subnormal(nn.Module):
    """Finite by eager; minus infinity where subnormals are zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x * 1e-41)


class _Ordered(nn.Module):
    """1 + 1e8 - 1e8 in order is 0, and 1 in the opposite order."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = torch.arange(4096)
        terms = (place == 0) + 1e8 * (place == 2000) - 1e8 * (place == 4000)
        sums = torch.zeros(3).index_add(
            0, torch.zeros_like(place), terms * x.abs().clamp(1, 1)[0, 0]
        )
        return sums + x.sum()


@pytest.mark.parametrize(
    ("module", "values", "words"),
    [
        (_Wrapped(), [[-2.6, 30.6, 3.0]], "output 'output'"),
        (_Subnormal(), [[0.1, 0.5, 0.9]], "output 'output'"),
        (_Ordered(), [[0.1, 0.5, 0.9]], "depends on a device's subnormals, contraction, atomics"),
    ],
    ids=["float_to_small_ints", "subnormals", "order_of_atomics"],
)
def test_what_a_gpu_computes_otherwise_fails_its_proof(
    tmp_path: Path, module: nn.Module, values: list[list[float]], words: str
) -> None:
    """A module that cannot come out as eager's on a Mac is not proven here either."""
    with pytest.raises(ValidationError, match=words):
        convert(
            module, (torch.tensor(values),), target="metal", out=tmp_path / "out", measure_seconds=0
        )
