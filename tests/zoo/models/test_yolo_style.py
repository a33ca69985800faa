"""The detector of our own: shapes, and box arithmetic done by hand."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from zoo.models.builders.yolo_style import Head, yolo_style


def test_a_prediction_for_every_cell_of_three_maps() -> None:
    """64 x 96 pixels at strides 8, 16 and 32: 8*12 + 4*6 + 2*3 cells."""
    model = yolo_style(classes=3, width=4).eval()
    with torch.no_grad():
        found = model(torch.rand(2, 3, 64, 96))
    assert {name: tuple(t.shape) for name, t in found.items()} == {
        "boxes": (2, 126, 4),
        "scores": (2, 126, 3),
    }


def test_boxes_are_expected_distances_from_cell_centres() -> None:
    """Equal chances for bins 0 to 15 put every side 7.5 cells away; zero logits score a half."""
    model = yolo_style(classes=1, width=4).eval()
    for head in model.heads:
        for branch in (cast("Head", head).sides, cast("Head", head).classes):
            last = cast("nn.Conv2d", branch[-1])
            nn.init.zeros_(last.weight)
            nn.init.zeros_(cast("nn.Parameter", last.bias))
    with torch.no_grad():
        found = model(torch.rand(1, 3, 64, 64))
    boxes = found["boxes"][0]
    # cell (x=0, y=0) of the finest map, (x=1, y=0) of it, and the last cell of the coarsest
    expected = [
        [(0.5 - 7.5) * 8, (0.5 - 7.5) * 8, (0.5 + 7.5) * 8, (0.5 + 7.5) * 8],
        [(1.5 - 7.5) * 8, (0.5 - 7.5) * 8, (1.5 + 7.5) * 8, (0.5 + 7.5) * 8],
        [(1.5 - 7.5) * 32, (1.5 - 7.5) * 32, (1.5 + 7.5) * 32, (1.5 + 7.5) * 32],
    ]
    torch.testing.assert_close(boxes[[0, 1, -1]], torch.tensor(expected))
    assert torch.equal(found["scores"], torch.full((1, 84, 1), 0.5))


def test_size() -> None:
    """Three million parameters by default: small enough for every test run."""
    assert sum(p.numel() for p in yolo_style().parameters()) == 3_026_432
