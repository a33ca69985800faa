"""Cases where each graph pass pays, and where it does not: one small program per case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from zoo.spec import PassChoice

aten = torch.ops.aten
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A program of a module that is lowered without any pass and with a pass."""

    graph_pass: str
    what: str
    module: Callable[[], nn.Module]
    inputs: Callable[[], Tensors]
    options: tuple[tuple[str, str], ...] = ()  # the pass's options

    @property
    def choice(self) -> PassChoice:
        """The pass with its options."""
        return PassChoice(name=self.graph_pass, options=dict(self.options))


class _Function(nn.Module):
    """A function of weights and inputs; weights are specified by shape."""

    def __init__(self, function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList([nn.Parameter(0.05 * torch.randn(s)) for s in shapes])

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*self.weights, *inputs)


class _NextBlock(nn.Module):
    """ConvNeXt's block on NCHW: depthwise 7x7, norm and two linears over channels, residual."""

    def __init__(self, channels: int, *, norm: bool) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels) if norm else nn.Identity()
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(functional.gelu(self.up(y))).permute(0, 3, 1, 2)


class _PointwiseChain(nn.Module):
    """Two linears over the channels of NCHW, with positions flattened to a sequence."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.up = nn.Linear(channels, 2 * channels)
        self.down = nn.Linear(2 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(functional.relu(self.up(x.flatten(2).transpose(1, 2))))
        return y.transpose(1, 2).reshape(x.shape)


class _JoinedLinear(nn.Module):
    """A linear over the concatenation of its inputs."""

    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, features)

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.cat(parts, -1))


class _Spectrogram(nn.Module):
    """The power spectrum of 25 ms frames every 10 ms at 16 kHz, in 512 bins and 80 mel bands."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("bands", torch.rand(80, 257))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.stft(
            x, 512, 160, 400, self.window, center=True, pad_mode="constant", return_complex=True
        )
        return torch.log(self.bands @ spectrum.abs().square() + 1e-5)


class _Residual(nn.Module):
    """Two 3x3 convolutions with norms, and a residual connection around them."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        groups = channels if kernel == 1 else 1
        self.layers = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False, groups=groups),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False, groups=groups),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x + self.layers(x))


def _split_then_multiply(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    left, right = aten.split_copy.Tensor(x, 512, -1)
    return torch.mm(left, a) + torch.mm(right, b)


def _split_then_gate(x: torch.Tensor) -> torch.Tensor:
    left, right = aten.split_copy.Tensor(x, 512, -1)
    return left * torch.sigmoid(right)


def _weight_norm(v: torch.Tensor, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, g * v / v.norm(dim=1, keepdim=True))


def _twice(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(functional.linear(x, w)) * torch.tanh(functional.linear(x, w))


def _permuted_back(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x.transpose(1, 2).contiguous().transpose(1, 2), y)


def _permuted_copy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.bmm(aten.permute_copy.default(x, [0, 2, 1]), y)


def _positive_permuted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.bmm(x.transpose(1, 2).relu().transpose(1, 2), y)


def _unused_branch(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    functional.linear(torch.exp(x), w)
    return functional.linear(x, w)


def _relative_scores(
    query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return Transformer-XL's scores: content scores plus shifted relative positions."""
    given = query @ positions.mT
    *leading, rows, length = given.shape
    padded = functional.pad(given, (1, 0)).view(*leading, -1, rows)
    shifted = padded[..., 1:, :].view(*leading, rows, length)[..., :rows]
    return torch.softmax(query @ key.mT + shifted, -1)


def _normal(*shapes: tuple[int, ...]) -> Callable[[], Tensors]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def _weighted(
    function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]
) -> Callable[[], nn.Module]:
    return lambda: _Function(function, *shapes)


_UNGATED = (("gate", "open"),)

CASES: tuple[Case, ...] = (
    Case(
        "replace_view_copies",
        "split_copy (1024 x 1024), two products",
        _weighted(_split_then_multiply, (512, 64), (512, 64)),
        _normal((1024, 1024)),
    ),
    Case(
        "replace_view_copies",
        "split_copy (1024 x 1024), elementwise gate",
        _weighted(_split_then_gate),
        _normal((1024, 1024)),
    ),
    Case(
        "replace_view_copies",
        "permute_copy (8 x 256 x 256), bmm",
        _weighted(_permuted_copy),
        _normal((8, 256, 256), (8, 256, 16)),
    ),
    Case(
        "fold_batch_norm",
        "residual block, 64 channels of 56 x 56",
        lambda: _Residual(64, 3),
        _normal((1, 64, 56, 56)),
    ),
    Case(
        "fold_batch_norm",
        "depthwise residual block, 64 channels of 56 x 56",
        lambda: _Residual(64, 1),
        _normal((1, 64, 56, 56)),
    ),
    Case(
        "fold_constants",
        "weight norm, linear 1024 to 1024, 16 rows",
        _weighted(_weight_norm, (1024, 1024), (1024, 1)),
        _normal((16, 1024)),
    ),
    Case(
        "merge_common_subexpressions",
        "one linear written twice, 64 x 512 to 512",
        _weighted(_twice, (512, 512)),
        _normal((64, 512)),
    ),
    Case(
        "pointwise_affine_to_conv",
        "ConvNeXt block with norm, 96 channels of 56 x 56",
        lambda: _NextBlock(96, norm=True),
        _normal((1, 96, 56, 56)),
    ),
    Case(
        "pointwise_affine_to_conv",
        "ConvNeXt block with norm, 384 channels of 14 x 14",
        lambda: _NextBlock(384, norm=True),
        _normal((1, 384, 14, 14)),
    ),
    Case(
        "pointwise_affine_to_conv",
        "ConvNeXt block without norm, 96 channels of 56 x 56",
        lambda: _NextBlock(96, norm=False),
        _normal((1, 96, 56, 56)),
    ),
    Case(
        "pointwise_affine_to_conv",
        "two linears over 128 channels of 32 x 32, flattened",
        lambda: _PointwiseChain(128),
        _normal((1, 128, 32, 32)),
    ),
    Case(
        "fuse_cat_linear",
        "20000 rows of 256 + 256 to 16",
        lambda: _JoinedLinear(512, 16),
        _normal((20000, 256), (20000, 256)),
    ),
    Case(
        "fuse_cat_linear",
        "16384 rows of 256 + 256 to 4",
        lambda: _JoinedLinear(512, 4),
        _normal((16384, 256), (16384, 256)),
    ),
    Case(
        "fuse_cat_linear",
        "16384 rows of 4 x 64 to 256 (gate shut)",
        lambda: _JoinedLinear(256, 256),
        _normal(*[(16384, 64)] * 4),
    ),
    Case(
        "fuse_cat_linear",
        "16384 rows of 4 x 64 to 256, gate forced",
        lambda: _JoinedLinear(256, 256),
        _normal(*[(16384, 64)] * 4),
        _UNGATED,
    ),
    Case(
        "remove_identity_permutes",
        "copied transposed and transposed back, bmm, 8 x 256 x 256",
        _weighted(_permuted_back),
        _normal((8, 256, 256), (8, 256, 16)),
    ),
    Case(
        "remove_identity_permutes",
        "relu between two transpositions, bmm, 8 x 256 x 256",
        _weighted(_positive_permuted),
        _normal((8, 256, 256), (8, 256, 16)),
    ),
    Case(
        "unpad_relative_shift",
        "scores of 4 heads of 64 over 188 frames",
        _weighted(_relative_scores),
        _normal((4, 188, 64), (4, 188, 64), (4, 375, 64)),
    ),
    Case(
        "remove_dead_code",
        "a linear that is never read",
        _weighted(_unused_branch, (512, 512)),
        _normal((64, 512)),
    ),
    Case(
        "decompose_stft",
        "log mel spectrum of 10 s at 16 kHz",
        _Spectrogram,
        _normal((1, 160000)),
    ),
)
