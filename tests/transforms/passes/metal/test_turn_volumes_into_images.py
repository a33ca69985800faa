"""Convolutions of volumes as convolutions of images: the same numbers, whatever the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.export import Dim

from transforms.graph.editor import fake_value
from transforms.passes.metal.turn_volumes_into_images import TurnVolumesIntoImages
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_SHAPE = (2, 4, 17, 11, 12)
_CONVOLUTIONS = {
    "dense": nn.Conv3d(4, 6, 3),
    "places alone": nn.Conv3d(4, 6, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
    "depth alone": nn.Conv3d(4, 6, (3, 1, 1), padding=(1, 0, 0)),
    "patches": nn.Conv3d(4, 8, (2, 4, 4), stride=(2, 4, 4)),
    "depthwise": nn.Conv3d(4, 8, 3, padding=1, groups=4),
    "each axis otherwise": nn.Conv3d(
        4, 6, (2, 3, 4), stride=(2, 1, 3), padding=(2, 1, 0), dilation=(3, 2, 1), groups=2,
        bias=False,
    ),
    "same": nn.Conv3d(4, 4, (4, 3, 2), padding="same", dilation=(1, 2, 1)),
    "valid": nn.Conv3d(4, 4, (2, 3, 4), padding="valid"),
    "transposed": nn.ConvTranspose3d(4, 6, 3),
    "transposed, twice as large": nn.ConvTranspose3d(4, 6, 2, stride=2, bias=False),
    "transposed, each axis otherwise": nn.ConvTranspose3d(
        4, 6, (3, 2, 4), stride=(3, 1, 2), padding=(4, 1, 0), output_padding=(2, 0, 1),
        dilation=(2, 1, 3), groups=2,
    ),
}  # fmt: skip


def _exported(module: nn.Module, sizes: dict[int, Dim] | None = None) -> ExportedProgram:
    example = (torch.randn(_SHAPE),)
    shapes = (sizes or {},)
    program = torch.export.export(module.eval(), example, dynamic_shapes=shapes, strict=False)
    return program.run_decompositions({})


def _convolves_volumes(program: ExportedProgram) -> bool:
    weights = [n.args[1] for n in program.graph.nodes if "conv" in str(n.target)]
    assert weights, "no convolution at all"
    return any(fake_value(weight).dim() == 5 for weight in weights)


_BATCH, _DEPTH = {0: Dim("batch", max=50)}, {2: Dim("depth", min=8, max=40)}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even")  # torch's, once
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (kind, sizes)
        for kind in _CONVOLUTIONS
        for sizes in ({}, _BATCH, _DEPTH)
        if not (sizes is _DEPTH and kind.startswith("transposed"))
    ],
)
def test_each_is_one_of_images_and_gives_the_same(kind: str, sizes: dict[int, Dim]) -> None:
    """At the example's sizes and at others, and no range of a dynamic size has become narrower."""
    module = _CONVOLUTIONS[kind]
    program = _exported(module, sizes)
    turned, _ = TurnVolumesIntoImages()(program)
    assert not _convolves_volumes(turned)
    assert turned.range_constraints == program.range_constraints
    other = tuple(31 if axis in sizes else size for axis, size in enumerate(_SHAPE))
    for shape in (_SHAPE, other):
        x = torch.randn(shape)
        torch.testing.assert_close(turned.module()(x), module(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "same", "transposed, twice as large"])
def test_a_volume_without_a_batch_is_turned_too(kind: str) -> None:
    """PyTorch takes it for a batch of one, and gives a result without a batch."""
    module, volume = _CONVOLUTIONS[kind].eval(), torch.randn(_SHAPE[1:])
    program = torch.export.export(module, (volume,), strict=False).run_decompositions({})
    turned, _ = TurnVolumesIntoImages()(program)
    assert not _convolves_volumes(turned)
    found = turned.module()(volume)
    torch.testing.assert_close(found, module(volume), atol=1e-5, rtol=1e-5)


def test_a_view_of_the_result_is_still_one_shape_of_it() -> None:
    """As in a video transformer, whose patches become a sequence."""
    module = nn.Sequential(nn.Conv3d(4, 6, 3), nn.ReLU(), nn.Flatten(2))
    turned, _ = TurnVolumesIntoImages()(_exported(module, {0: Dim("batch", max=50)}))
    x = torch.randn(5, *_SHAPE[1:])
    torch.testing.assert_close(turned.module()(x), module(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("module", "sizes"),
    [(nn.ConvTranspose3d(4, 6, 3), _DEPTH), (nn.Conv3d(4, 6, 3), _BATCH | _DEPTH)],
)
def test_those_of_no_fixed_size_are_refused(module: nn.Module, sizes: dict[int, Dim]) -> None:
    """No kernel of the device convolves along three axes: the node and a way are named."""
    with pytest.raises(LoweringError, match=r"convolves along three axes.*convert for the CPU"):
        TurnVolumesIntoImages()(_exported(module, sizes))


def test_convolutions_of_images_are_left_alone() -> None:
    """Their weights have four axes."""
    program = torch.export.export(nn.Conv2d(4, 6, 3), (torch.randn(1, 4, 8, 8),), strict=False)
    assert TurnVolumesIntoImages()(program)[0] is program
