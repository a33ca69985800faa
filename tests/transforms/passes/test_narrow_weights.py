"""Weights in half the bytes: what is rounded, what is refused, what the artifact computes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.pieces import assert_as_eager
from transforms import convert
from transforms.pipeline import run_passes
from zoo.errors import UsageError
from zoo.spec import PassChoice

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.records import PassRecord


class _Net(nn.Module):
    """A convolution with a norm to fold, a linear layer, a table, and a buffer without axes.

    Each bias has more than the eight numbers that Inductor writes into the code.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.norm = nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16)
        self.table = nn.Embedding(5, 12)
        self.linear = nn.Linear(16, 12)
        self.register_buffer("scale", torch.tensor(1 / 3))
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(batch, 12)."""
        mean = self.norm(self.convolution(x)).mean((2, 3))
        return (self.linear(mean) + self.table(rows)) * self.scale


def _net() -> tuple[_Net, tuple[torch.Tensor, torch.Tensor]]:
    module = _Net().eval().requires_grad_(requires_grad=False)
    return module, (torch.randn(2, 3, 9, 9), torch.tensor([1, 4]))


def _narrowed(module: nn.Module, dtype: str, *inputs: torch.Tensor) -> tuple[nn.Module, PassRecord]:
    program = torch.export.export(module, inputs)
    choice = PassChoice(name="narrow_weights", options={"dtype": dtype})
    made, log = run_passes(program, [choice])
    return made.module(), log.records[0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_has_two_axes_is_rounded_and_nothing_else(dtype: torch.dtype) -> None:
    """The program computes what eager does, in float32, of a model whose weights were rounded."""
    module, inputs = _net()
    made, record = _narrowed(module, str(dtype).removeprefix("torch."), *inputs)
    for layer in (module.convolution, module.table, module.linear):
        layer.weight.copy_(layer.weight.to(dtype).float())
    assert torch.equal(module(*inputs), made(*inputs))
    assert record.changes == (f"rounded 3 weights to {dtype}, to compute in float32",)


@pytest.mark.parametrize(
    ("scale", "reason"),
    [(1e6, "which torch.float16 does not hold"), (1e-7, "too small for torch.float16")],
)
def test_what_float16_cannot_hold_stays_as_it_is(scale: float, reason: str) -> None:
    """A weight out of its range, or below its normal numbers, is refused with the reason."""
    torch.manual_seed(0)
    module = nn.Linear(4, 4).requires_grad_(requires_grad=False)
    module.weight.mul_(scale)
    x = torch.randn(2, 4)
    made, record = _narrowed(module, "float16", x)
    assert torch.equal(module(x), made(x))
    assert [reason in refusal.reason for refusal in record.refusals] == [True]
    assert not record.changes


def test_another_type_is_refused() -> None:
    """Names the types that there are."""
    module, inputs = _net()
    with pytest.raises(UsageError, match="Known: float16, bfloat16"):
        _narrowed(module, "float64", *inputs)
    with pytest.raises(UsageError, match="there is no precision 'int3'"):
        convert(module, inputs, precision="int3", out="never")


@pytest.mark.parametrize(
    ("target", "dtype"), [("cpu", torch.float16), ("cpu", torch.bfloat16), ("metal", torch.float16)]
)
def test_the_bundle_keeps_two_bytes_a_weight_and_computes_in_float32(
    target: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """The file says the type; the artifact agrees with the rounded model as float32 does."""
    module, inputs = _net()
    name = str(dtype).removeprefix("torch.")
    made = convert(
        module, inputs, target=target, precision=name, out=tmp_path / "out", measure_seconds=0
    )
    word = {"float16": "F16", "bfloat16": "BF16"}[name]
    kept = _kept(made.folder / "weights.safetensors")
    assert {types for types, axes in kept if axes > 1} == {word}
    assert {types for types, axes in kept if axes < 2} == {"F32"}
    assert len([axes for _, axes in kept if axes > 1]) == 3  # the folded convolution's too

    gain = module.norm.weight / torch.sqrt(module.norm.running_var + module.norm.eps)
    folded = module.convolution.weight * gain[:, None, None, None]
    rounded = folded.to(dtype).float() / gain[:, None, None, None]
    module.convolution.weight.copy_(rounded)
    for layer in (module.table, module.linear):
        layer.weight.copy_(layer.weight.to(dtype).float())
    assert_as_eager(made.folder, module, inputs, atol=2e-6)


def _kept(path: Path) -> list[tuple[str, int]]:
    """Type and axes of each tensor, by the format's text: a length of 8 bytes, then JSON."""
    held = path.read_bytes()
    head = json.loads(held[8 : 8 + int.from_bytes(held[:8], "little")])
    return [
        (entry["dtype"], len(entry["shape"]))
        for name, entry in head.items()
        if name != "__metadata__"
    ]


class _TwoLayers(nn.Module):
    """Two products with weights of many pages, over any number of rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(96, 384), nn.Linear(384, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, 96)."""
        return self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize("precision", ["float16", "int8-weight-only"])
def test_every_size_of_input_finds_the_weights(precision: str, tmp_path: Path) -> None:
    """A kernel for another size packs the widened weights again: they are still there."""
    module = _TwoLayers().eval().requires_grad_(requires_grad=False)
    rows = torch.export.Dim("rows", min=1, max=512)
    made = convert(
        module,
        (torch.randn(200, 96),),
        dynamic_shapes=({0: rows},),
        precision=precision,
        out=tmp_path / "out",
        measure_seconds=0,
    )
    calls = ((torch.randn(count, 96),) for count in (200, 3, 1, 512, 40))
    assert_as_eager(made.folder, module, *calls, atol=5e-2)
