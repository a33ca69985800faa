"""What follows a product is computed with it, and the program's numbers stay."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from menagerie.session import Session
from transforms import convert, run_passes
from transforms.graph.editor import fake_value
from transforms.passes.metal.fuse_epilogues import MOST_STEPS, FuseEpilogues, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.export import ExportedProgram

aten = torch.ops.aten
_DIM = torch.export.Dim("places", min=2, max=64)


def _calls(program: ExportedProgram) -> list[str]:
    """The operators that a program calls, without what only says how tensors are laid out."""
    views = {
        "view", "t", "flatten", "transpose", "squeeze", "expand", "sym_size", "_to_copy", "to",
        "_assert_tensor_metadata",
    }  # fmt: skip
    names = [str(n.target).split(".")[1] for n in program.graph.nodes if n.op == "call_function"]
    return [name for name in names if name not in views]


def _fused(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], dynamic: Any = None
) -> tuple[ExportedProgram, list[str]]:
    """The fused program, once its results were found to be eager's, and what it calls."""
    module = module.eval()
    exported = torch.export.export(module, inputs, dynamic_shapes=dynamic)
    program, _ = run_passes(exported, ["turn_pointwise_sequences", "fuse_epilogues"])
    for node in program.graph.nodes:
        if node.target is torch.ops.menagerie.finished_product.default:
            assert {fake_value(operand).dim() for operand in node.args[:2]} == {2}
    with torch.no_grad():
        torch.testing.assert_close(program.module()(*inputs), module(*inputs), rtol=1e-5, atol=1e-5)
    return program, _calls(program)


class Following(nn.Module):
    """A layer, and what is done to its result and another input."""

    def __init__(self, layer: nn.Module, follow: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.follow = follow

    def forward(self, x: torch.Tensor, *other: torch.Tensor) -> torch.Tensor:
        """The layer's result, followed."""
        return self.follow(self.layer(x), *other)


_ONE_INPUT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "leaky relu": lambda x: F.leaky_relu(x, 0.2),
    "relu6": F.relu6,
    "clamp": lambda x: x.clamp(-0.1, 0.2),
    "clamp from below": lambda x: x.clamp(min=0.1),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "halved and moved": lambda x: x * 0.5 + 3,
    "divided and less": lambda x: x / 4 - 1,
    "four steps": lambda x: (x.relu() * 2).sigmoid() + 1,
}


@pytest.mark.parametrize("name", _ONE_INPUT)
@pytest.mark.parametrize("kind", ["linear", "convolution", "depthwise", "sequence"])
def test_what_follows_is_fused(kind: str, name: str) -> None:
    """Every activation and factor behind every kind of product becomes one call with it."""
    layer, x = {
        "linear": (nn.Linear(8, 6), torch.randn(2, 5, 8)),
        "convolution": (nn.Conv2d(4, 6, 3, padding=1, bias=False), torch.randn(2, 4, 5, 6)),
        "depthwise": (nn.Conv2d(4, 4, 3, stride=2, groups=4), torch.randn(2, 4, 5, 6)),
        "sequence": (nn.Conv1d(4, 6, 3, dilation=2), torch.randn(1, 4, 9)),
    }[kind]
    _, calls = _fused(Following(layer, _ONE_INPUT[name]), (x,))
    assert calls == ["finished_product" if kind == "linear" else "finished_convolution"]


_TWO_INPUTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "residual": lambda x, other: other + x,
    "residual, relu": lambda x, other: (x + other).relu(),
    "half a residual": lambda x, other: torch.add(x, other, alpha=0.5),
    "half of it": lambda x, other: other + 0.5 * x,
    "taken from": lambda x, other: other - x,
    "less": lambda x, other: torch.sub(x, other, alpha=2),
    "gate": lambda x, other: x.sigmoid() * other,
}


@pytest.mark.parametrize("name", _TWO_INPUTS)
@pytest.mark.parametrize("layer", [nn.Linear(6, 6), nn.Conv1d(5, 5, 3, padding=1)])
def test_residuals_are_fused(layer: nn.Module, name: str) -> None:
    """One more operand is read by the product's kernel, on either side of the sum."""
    inputs = (torch.randn(2, 5, 6), torch.randn(2, 5, 6))
    _, calls = _fused(Following(layer, _TWO_INPUTS[name]), inputs)
    assert len(calls) == 1
    assert calls[0].startswith("finished_")


@pytest.mark.parametrize("batch", [1, 2])
def test_masks_are_read_where_strides_reach(batch: int) -> None:
    """A mask of places multiplies a convolution, and of one batch a linear layer too."""
    mask = torch.rand(batch, 5, 1) > 0.5
    layer = Following(nn.Linear(6, 6), torch.mul)
    _, calls = _fused(layer, (torch.randn(batch, 5, 6), mask))
    assert calls == (["finished_product"] if batch == 1 else ["linear", "mul"])
    image = Following(nn.Conv2d(3, 4, 3, padding=1), torch.mul)
    _, calls = _fused(image, (torch.randn(batch, 3, 5, 6), mask[:, None]))
    assert calls == ["finished_convolution"]


def test_sizes_may_change() -> None:
    """A layer over sequences of any length is fused once for all of them."""
    module = Following(nn.Linear(8, 8), lambda x, other: F.silu(x) + other)
    sizes = ({0: None, 1: _DIM}, ({0: None, 1: _DIM},))
    inputs = (torch.randn(2, 7, 8), torch.randn(2, 7, 8))
    program, calls = _fused(module, inputs, sizes)
    assert calls == ["finished_product"]
    longer = (torch.randn(2, 11, 8), torch.randn(2, 11, 8))
    torch.testing.assert_close(program.module()(*longer), module(*longer))


def test_pointwise_sequence_is_a_linear_layer() -> None:
    """A pointwise convolution whose result is turned, then summed, is one product of matrices."""
    module = Following(nn.Conv1d(4, 6, 1), lambda x, other: other + x.transpose(1, 2))
    _, calls = _fused(module, (torch.randn(1, 4, 9), torch.randn(1, 9, 6)))
    assert calls == ["finished_product"]


_LEFT: dict[str, tuple[Callable[..., torch.Tensor], list[str]]] = {
    "read twice": (lambda x, _: x.relu() + x, ["linear", "relu", "add"]),
    "summed with itself": (lambda x, _: x + x, ["linear", "add"]),
    "another shape": (lambda x, other: x[:, :1] + other, ["linear", "slice", "add"]),
    "spread": (lambda x, other: x + other[:, None], ["linear", "unsqueeze", "add"]),
    "another dtype": (lambda x, other: x + other.to(torch.int64), ["linear", "add"]),
    "two operands": (lambda x, other: (x + other) * other, ["finished_product", "mul"]),
    "five steps": (
        lambda x, _: x.relu().sigmoid().tanh().relu().sigmoid(),
        ["finished_product", "sigmoid"],
    ),
    "nothing": (lambda x, _: x.exp(), ["linear", "exp"]),
}


@pytest.mark.parametrize("name", _LEFT)
def test_what_a_kernel_cannot_is_left(name: str) -> None:
    """What is read elsewhere too, changes shape or dtype, or is too much stays as it was."""
    follow, expected = _LEFT[name]
    inputs = (torch.randn(5, 6), torch.randn(5, 6))
    _, calls = _fused(Following(nn.Linear(6, 6), follow), inputs)
    assert calls == expected


class Row(nn.Module):
    """A layer whose weight is one row, so that its result lacks an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, places, 6) to (N, places)."""
        return F.linear(x, self.weight)


def test_layer_of_one_row_is_left() -> None:
    """Its result is not the matrix that a kernel would make."""
    _, calls = _fused(Following(Row(), F.relu), (torch.randn(2, 5, 6),))
    assert calls == ["linear", "relu"]


class Overwritten(nn.Module):
    """A buffer changes between a product that read it and what follows the product."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("kept", torch.ones(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A sum with what is kept, which the call replaces."""
        result = self.layer(self.kept)
        self.kept.copy_(x)
        return result.relu()


def test_product_does_not_pass_a_write() -> None:
    """A product reads what its operand was before the write, however late it is computed."""
    module, x = Overwritten().eval(), torch.randn(2, 4)
    fused, _ = FuseEpilogues()(torch.export.export(copy.deepcopy(module), (x,)))
    assert _calls(fused) == ["finished_product"]
    rewritten = fused.module()
    for _ in range(2):
        torch.testing.assert_close(rewritten(x), module(x))


class Excited(nn.Module):
    """Squeeze and excitation between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.gate = nn.Conv2d(4, 4, 1)
        self.last = nn.Conv2d(4, 6, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) to (N, 6, H - 2, W - 2)."""
        images = self.first(x)
        gate = F.hardsigmoid(self.gate(images.mean((2, 3), keepdim=True)))
        result: torch.Tensor = self.last(images * gate)
        return result


def test_factors_of_channels_are_applied_where_they_are_read() -> None:
    """What the gate gives is no kernel's work by itself."""
    _, calls = _fused(Excited(), (torch.randn(2, 3, 6, 5),))
    assert calls == ["finished_convolution", "mean", "finished_convolution", "finished_convolution"]


class TwiceMasked(nn.Module):
    """Two convolutions of one length, each with the mask behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(3, 4, 3, padding=1)
        self.second = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(N, 3, places) and booleans (N, 1, places) to (N, 4, places)."""
        result: torch.Tensor = self.second((self.first(x) * mask).relu()) * mask
        return result


class Gated(nn.Module):
    """A Conformer's convolution, between two pointwise ones."""

    def __init__(self, window: int = 9, dim: int = 1) -> None:
        super().__init__()
        self.first, self.dim = nn.Conv1d(3, 8, 1), dim
        channels = 4 if dim == 1 else 8
        self.middle = nn.Conv1d(channels, channels, window, padding=window // 2, groups=channels)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """(N, 3, places) and booleans (N, 1, places) to (N, 4, places)."""
        return F.silu(self.middle(F.glu(self.first(x), self.dim).masked_fill(hidden, 0)))


class Groups(nn.Module):
    """How often 41 goes into the sum of a row, by a product with ones."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = nn.Linear(8, 1, bias=False)
        nn.init.ones_(self.sum.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 8) to (N, 1)."""
        return torch.floor(self.sum(x) / 41)


def test_a_quotient_behind_a_product_is_eagers(tmp_path: Path) -> None:
    """41 times the nearest number to 1 / 41 is less than 1."""
    out = tmp_path / "out"
    convert(Groups(), (torch.randn(4, 8),), target="metal", out=out, measure_seconds=0)
    x = torch.zeros(4, 8)
    x[:, 3] = torch.tensor([41.0, 82.0, 123.0, 40.0])
    with Session(out) as session:
        [result] = session.run({"x": x.numpy()}).values()
    assert result.ravel().tolist() == [1.0, 2.0, 3.0, 0.0]


_KNOWN = Gated()


@pytest.mark.parametrize(
    ("module", "places"), [(_KNOWN, 12), (Gated(window=5), 12), (Gated(dim=2), 6)]
)
def test_a_gate_is_computed_where_it_is_read(module: Gated, places: int, tmp_path: Path) -> None:
    """By the kernel of a window that it knows, and the same by Inductor; NaN behind the mask."""
    hidden = torch.rand(2, 1, places) > 0.5
    x = torch.randn(2, 3, 12)
    _, calls = _fused(module, (x, hidden))
    assert calls.count("glu") == (module is not _KNOWN)
    if places == x.shape[-1]:
        x = x.masked_fill(hidden, torch.nan)
    convert(module, (x, hidden), target="metal", out=tmp_path / "out", measure_seconds=0)
    with Session(tmp_path / "out") as session:
        [result] = session.run({"x": x.numpy(), "hidden": hidden.numpy()}).values()
    torch.testing.assert_close(torch.from_numpy(result), module(x, hidden).detach())


def test_a_product_of_a_masked_input_is_no_gate(tmp_path: Path) -> None:
    """Only a convolution reads what is gated and masked; a linear layer has no window."""

    class Masked(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(super().forward(x.masked_fill(x > 1, 0)))

    _, calls = _fused(module := Masked(6, 4), x := (torch.randn(5, 6),))
    assert calls == ["gt", "masked_fill", "finished_product"]
    convert(module, x, target="metal", out=tmp_path / "out", measure_seconds=0)


def test_a_mask_is_converted_once() -> None:
    """However many products it follows."""
    inputs = (torch.randn(2, 3, 6), torch.rand(2, 1, 6) > 0.5)
    program, calls = _fused(TwiceMasked(), inputs)
    assert calls == ["finished_convolution"] * 2
    assert sum(node.target is aten._to_copy.default for node in program.graph.nodes) == 1


def test_steps_have_the_numbers_of_the_kernels_header() -> None:
    """Lowering writes numbers into a program, which the shaders read: names and order are one."""
    header = (Path(__file__).parents[4] / "runtime" / "metal" / "kernels" / "steps.h").read_text()
    listing = header.partition("enum Step : int {")[2].partition("}")[0]
    names = re.findall(r"\bk(\w+)(?=,)", listing)
    assert [name.upper() for name in names] == [s.name.replace("_", "") for s in Step]
    assert [*map(int, re.findall(r"kMostSteps = (\d+)", header))] == [MOST_STEPS]
