"""torchvision's operators where its binary does not load: by torchvision's own definitions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.pieces import Apply, run_piece
from transforms import convert
from transforms.lowering import cpu
from zoo.errors import ExportError, UnsupportedKernels
from zoo.models.torchvision_operators import (
    align_regions,
    deformed_convolution,
    suppress_boxes,
    torchvision_operators,
)

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="module")
def ops() -> ModuleType:
    """torchvision.ops."""
    with torchvision_operators():
        import torchvision
    module: ModuleType = torchvision.ops
    return module


def test_boxes_that_overlap_a_better_one_go() -> None:
    """Areas 4, intersections 2 and 1: overlaps of a third and a seventh."""
    boxes = torch.tensor([[0, 0, 2, 2], [1, 0, 3, 2], [10, 10, 12, 12], [1, 1, 3, 3]]).float()
    scores = torch.tensor([0.5, 0.9, 0.1, 0.7])
    # Box 1 is best; it shares 2 of 6 with box 0 and with box 3. Box 0 shares 1 of 7 with box 3.
    assert suppress_boxes(boxes, scores, 0.34).tolist() == [1, 3, 0, 2]
    assert suppress_boxes(boxes, scores, 0.33).tolist() == [1, 2]
    assert suppress_boxes(boxes[:0], scores[:0], 0.5).shape == (0,)


@pytest.mark.parametrize("aligned", [True, False])
def test_regions_of_a_ramp_are_its_values_there(*, aligned: bool) -> None:
    """Between pixels a ramp is exact, so every bin holds the ramp's value at its own centre."""
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(16.0), indexing="ij")
    maps = torch.stack([torch.stack([x, y]), torch.stack([x + 100, y])])
    rois = torch.tensor([[0, 4, 6, 20, 14], [1, 6, 4, 22, 20]]).float()  # image, x0, y0, x1, y1
    result = align_regions(maps, rois, 0.5, 2, 4, 2, aligned)
    assert result.shape == (2, 2, 2, 4)
    shift = 0.5 if aligned else 0.0
    # The first is 8 wide and 4 high at half scale, from (2, 3): bins of 2 by 2.
    torch.testing.assert_close(result[0, 0, 0], torch.tensor([3.0, 5, 7, 9]) - shift)
    torch.testing.assert_close(result[0, 1, :, 0], torch.tensor([4.0, 6]) - shift)
    torch.testing.assert_close(result[1, 0, 1], torch.tensor([104.0, 106, 108, 110]) - shift)


def test_samples_outside_count_nothing() -> None:
    """Of a region that is outside by more than a pixel nothing is left."""
    maps, rois = torch.ones(1, 1, 8, 8), torch.tensor([[0.0, 20, 20, 24, 24]])
    assert align_regions(maps, rois, 1.0, 2, 2, 2, True).count_nonzero() == 0


def _deformed(
    x: torch.Tensor, weight: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    bias = torch.arange(weight.shape[0]).float()
    return deformed_convolution(x, weight, offset, mask, bias, 2, 1, 1, 2, 1, 2, 2, 2, True)


def test_a_convolution_that_nothing_moves_is_plain() -> None:
    """No offsets, a mask of ones: torch's convolution, with its strides, pads and groups."""
    x, weight = torch.randn(2, 4, 9, 7), torch.randn(6, 2, 3, 3)
    offset, mask = torch.zeros(2, 36, 5, 7), torch.ones(2, 18, 5, 7)
    plain = F.conv2d(x, weight, torch.arange(6.0), (2, 1), (1, 2), (1, 2), 2)
    torch.testing.assert_close(_deformed(x, weight, offset, mask), plain, rtol=1e-4, atol=1e-4)


def test_taps_read_where_they_are_moved() -> None:
    """All taps a row down and half a column right, scaled by 3: the map so moved, convolved."""
    x, weight = torch.randn(1, 4, 9, 7), torch.randn(6, 2, 3, 3)
    offset = torch.tensor([1.0, 0.5]).repeat(18)[None, :, None, None].expand(1, 36, 5, 7)
    padded = F.pad(x, (3, 4, 3, 4))
    moved = (padded[:, :, 1:, :-1] + padded[:, :, 1:, 1:]) / 2
    plain = F.conv2d(moved, weight, None, (2, 1), (1, 2), (1, 2), 2)[:, :, 1:6, 3:10]
    rows = F.conv2d(moved[:, :, 2:, 1:], weight, None, (2, 1), 0, (1, 2), 2)[:, :, :5, :7]
    assert plain.shape == rows.shape
    expected = 3 * rows + torch.arange(6.0)[:, None, None]
    result = _deformed(x, weight, offset, torch.full((1, 18, 5, 7), 3.0))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


class _Regions(nn.Module):
    def __init__(self, ops: ModuleType) -> None:
        super().__init__()
        self.ops = ops
        self.deform = ops.DeformConv2d(4, 6, 3, padding=1)
        self.offset = nn.Conv2d(4, 18, 3, padding=1)

    def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        y = self.deform(x, self.offset(x))
        regions: torch.Tensor = self.ops.roi_align(y, [boxes], (3, 3), 1.0, 2)
        return regions


def test_sampling_is_lowered_as_what_it_is_made_of(ops: ModuleType, tmp_path: Path) -> None:
    """A deformed convolution and aligned regions run without a kernel of torchvision's."""
    torch.manual_seed(5)
    module = _Regions(ops).eval()
    x, boxes = torch.randn(1, 4, 10, 10), torch.tensor([[1.0, 1, 7, 8], [0, 2.5, 9, 6]])
    with torch.no_grad():
        program = torch.export.export(module, (x, boxes), strict=False).run_decompositions({})
        [result] = run_piece(program, [x, boxes])
        torch.testing.assert_close(result, module(x, boxes), rtol=1e-4, atol=1e-5)
    assert convert(module, (x, boxes), out=tmp_path / "regions", measure_seconds=0)


class _Suppressed(nn.Module):
    def __init__(self, ops: ModuleType) -> None:
        super().__init__()
        self.ops = ops

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        kept: torch.Tensor = self.ops.nms(boxes, scores, 0.5)
        return kept


@pytest.mark.filterwarnings("ignore:.*create_unbacked_symint:FutureWarning")  # of torchvision's
def test_suppression_is_refused_by_its_name_and_place(ops: ModuleType, tmp_path: Path) -> None:
    """The message names the operator and the line of the model, not the entry."""
    boxes, scores = torch.tensor([[0.0, 0, 2, 2], [1, 0, 3, 2]]), torch.tensor([0.5, 0.9])
    assert _Suppressed(ops)(boxes, scores).tolist() == [1, 0]
    program = torch.export.export(_Suppressed(ops), (boxes, scores), strict=False)
    with pytest.raises(UnsupportedKernels, match=r"torchvision\.nms") as caught:
        cpu.lower(program.run_decompositions({}), tmp_path / "model.so")
    assert "boxes.py" in str(caught.value) or Path(__file__).name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sampling", "words"),
    [
        ("roi_pool", (), "no kernel of torchvision::roi_pool. Convert what comes before and after"),
        ("ps_roi_pool", (), "no kernel of torchvision::ps_roi_pool. Convert"),
        ("ps_roi_align", (), "no kernel of torchvision::ps_roi_align. Convert"),
        ("roi_align", (1.0, 0), "roi_align with sampling_ratio <= 0.* Give a sampling_ratio above"),
    ],
)
def test_pools_without_a_kernel_are_refused_by_name_and_line(
    name: str, sampling: tuple[float, ...], words: str, ops: ModuleType, tmp_path: Path
) -> None:
    """The line is the model's, not ours or torchvision's."""
    boxes = torch.tensor([[0.0, 0, 0, 2, 2]])
    pool = Apply(lambda x: getattr(ops, name)(x, boxes, 2, *sampling))
    with pytest.raises(ExportError, match=rf"(?s){words}.*\([^()]*{Path(__file__).name}:\d+\)"):
        convert(pool.eval(), (torch.ones(1, 4, 6, 6),), out=tmp_path / "bundle")


_FACTORY = """
from transformers import BertConfig, BertModel
def tiny():
    return BertModel(BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1,
                                num_attention_heads=2, intermediate_size=8))
"""
_BUILD = """
import sys
from pathlib import Path
from zoo.sources.context import Context
from zoo.sources.factory import build
module = build("owners:tiny", {}, Context("m", Path(sys.argv[1]), allow_factories=True))
print(type(module).__name__)
"""


@pytest.mark.sweep
def test_a_factory_may_import_transformers(tmp_path: Path) -> None:
    """In a fresh process, where nothing else has declared what transformers' imports ask for."""
    (tmp_path / "owners.py").write_text(_FACTORY)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _BUILD, str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.strip() == "BertModel"
