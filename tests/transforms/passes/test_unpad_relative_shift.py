"""UnpadRelativeShift: the scores of relative positions, shifted by views alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.pieces import Apply, assert_as_eager
from transforms import convert
from transforms.export.trace import trace
from transforms.passes.unpad_relative_shift import UnpadRelativeShift
from transforms.pipeline import explain_program
from zoo.models.torchvision_operators import torchvision_operators

aten = torch.ops.aten


class _Shift(nn.Module):
    """The shift as Transformer-XL writes it, between two computations."""

    def __init__(self, kept: int | None = None, **changes: Any) -> None:
        super().__init__()
        self.kept = kept
        self.pad = changes.get("pad", (1, 0))
        self.after = changes.get("after", lambda x: x)
        self.before = changes.get("before", lambda x: x)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.before(x.exp())
        *leading, rows, length = x.shape
        padded = nn.functional.pad(x, self.pad)
        shifted = padded.view(*leading, -1, rows)[..., 1:, :].view(*leading, rows, length)
        return self.after(shifted[..., : self.kept or rows]).sin()


def _export(module: nn.Module, x: torch.Tensor) -> Any:
    return torch.export.export(module, (x,), strict=False)


@settings(max_examples=30, deadline=None)
@given(
    leading=st.lists(st.integers(1, 3), max_size=2),
    rows=st.integers(2, 6),
    more=st.integers(0, 4),
    data=st.data(),
)
def test_every_legal_shift_goes_by_views(
    leading: list[int], rows: int, more: int, data: st.DataObject
) -> None:
    """Scores are numbered, so that one read from a wrong place shows; nothing is copied."""
    length = 2 * rows - 1 + more
    kept = data.draw(st.integers(1, min(length - rows + 1, length - 1)))
    count = torch.tensor([*leading, rows, length]).prod()
    x = torch.arange(int(count)).reshape(*leading, rows, length) / count
    module = _Shift(kept)
    result, record = UnpadRelativeShift()(_export(module, x).run_decompositions({}))
    assert len(record.changes) == 1
    assert aten.pad.default not in {node.target for node in result.graph.nodes}
    torch.testing.assert_close(result.module()(x), module(x), rtol=0, atol=0)


class _Encoder(nn.Module):
    """transformers' Parakeet with one layer, from features to its hidden states."""

    def __init__(self) -> None:
        super().__init__()
        with torchvision_operators():
            from transformers import ParakeetEncoder, ParakeetEncoderConfig
        config = ParakeetEncoderConfig(
            hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16,
            num_mel_bins=16, subsampling_conv_channels=4,
        )  # fmt: skip
        self.encoder = ParakeetEncoder(config)

    def forward(self, features: torch.Tensor, heard: torch.Tensor | None = None) -> torch.Tensor:
        return self.encoder(features, heard).last_hidden_state  # type: ignore[no-any-return]


@pytest.mark.parametrize("low", [1, 2])
def test_parakeet_of_any_length(low: int) -> None:
    """One program serves all numbers of rows. Where there may be a single one, the pad stays."""
    torch.manual_seed(0)
    module = _Encoder().eval()
    shapes = ({1: 8 * torch.export.Dim("rows", min=low, max=64)},)
    program = trace("program main", module, (torch.randn(1, 56, 16),), shapes=shapes)
    result, record = UnpadRelativeShift()(program)
    if low == 1:
        assert result is program
        assert "fewer than" in record.refusals[0].reason
        return
    assert len(record.changes) == 1
    for rows in (2, 3, 17, 64):
        x = torch.randn(1, 8 * rows, 16)
        with torch.no_grad():
            torch.testing.assert_close(result.module()(x), module(x))


@torch.no_grad()
def test_scores_of_parakeet_are_one_dispatch_on_metal(tmp_path: Any) -> None:
    """With the attention, of any length, and of frames that hear and are heard by nobody."""
    module, sizes = _Encoder().eval(), {1: 8 * torch.export.Dim("rows", min=2, max=64)}
    calls = [(torch.randn(1, 8 * n, 16), torch.arange(8 * n)[None] < 8 * n - 8) for n in (2, 7, 64)]
    dims = (sizes, sizes)
    program = trace("program main", module, calls[1], shapes=dims)
    found = explain_program("main", program, target="metal")[1].dispatches
    assert (found["relative_attention"], found.keys() & {"bmm_out", "attention"}) == (1, set())
    convert(module, calls[1], out=tmp_path, target="metal", dynamic_shapes=dims, measure_seconds=0)
    assert_as_eager(tmp_path, module, *calls, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(3, 9, 8), (1, 1, 9, 8)])
def test_scores_of_other_queries_are_a_mask_on_metal(sizes: tuple[int, ...], tmp_path: Any) -> None:
    """Queries of three axes, or of one head that the biases widen."""
    lead = (*sizes[:-3], 3)
    key, positions, *biases = (torch.rand(*lead, n, 8) for n in (9, 17, 1, 1))

    def attend(query: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad((query + biases[0]) @ positions.mT, (1, 0))
        mask = padded.view(*lead, -1, 9)[..., 1:, :].view(*lead, 9, 17)[..., :9] * 8**-0.5
        return nn.functional.scaled_dot_product_attention(query + biases[1], key, key, mask)

    convert(Apply(attend), (torch.rand(sizes),), out=tmp_path, target="metal", measure_seconds=0)
    assert_as_eager(tmp_path, attend, (torch.rand(sizes),), rtol=1e-4, atol=1e-4)


_SQUARE = torch.rand(2, 5, 9)


def test_a_shift_that_is_written_goes_by_views() -> None:
    """What is written is its own copy."""
    module = _Shift(after=lambda x: x.add_(1))
    result, record = UnpadRelativeShift()(_export(module, _SQUARE))
    assert len(record.changes) == 1
    torch.testing.assert_close(result.module()(_SQUARE), module(_SQUARE), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("module", "x", "reason"),
    [
        (_Shift(6), _SQUARE, "next row"),
        (_Shift(3), torch.rand(3, 4), "next row"),
        (_Shift(), _SQUARE.transpose(1, 2).contiguous().transpose(1, 2), "view"),
        (_Shift(before=lambda x: x.mT.contiguous().mT), _SQUARE, "view"),
    ],
)
def test_refuses_with_a_reason(module: nn.Module, x: torch.Tensor, reason: str) -> None:
    """Where other numbers would be read, the pad stays."""
    program = _export(module, x)
    result, record = UnpadRelativeShift()(program)
    assert result is program
    assert reason in record.refusals[0].reason


@pytest.mark.parametrize(
    "module", [_Shift(pad=(1, 0, 0, 0)), _Shift(before=lambda x: x[..., 1:], pad=(0, 1))]
)
def test_other_pads_are_left_alone(module: nn.Module) -> None:
    """A pad of other places is no shift."""
    program = _export(module, _SQUARE)
    assert UnpadRelativeShift()(program)[0] is program
