"""Turn convolutions along three axes into convolutions of images, which GPU kernels support.

A window of K positions along the first axis covers K images. Stacked as channels, they are one
image with K times the channels, and the weight, with its second and third axis merged, fits that
image as it is in memory, whatever the groups:

    (O, C / groups, K, KH, KW)  =  (O, C / groups * K, KH, KW)

So a batch of N volumes with D' windows each is a batch of N D' images.

A transposed convolution is the sum of the results of its K image weights: each is spread by the
stride and shifted by the weight's position.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from transforms.graph.editor import ProgramEditor, fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.record import origin
from transforms.graph.schemas import bound_arguments, for_each_axis
from transforms.graph.traced import write
from transforms.passes.lay_out_weights import let_views_copy
from zoo.errors import LoweringError

aten = torch.ops.aten

_DENSE = (aten.conv3d.default, aten.conv3d.padding, aten.convolution.default)
_ALL = (*_DENSE, aten.conv_transpose3d.input)
_RANK = 5  # of volumes: batch, channels, depth, height, width
_DEPTH = 2
_ADVICE = "Fix the batch or the depth, of a transposed one the depth, or convert for the CPU"
_AXES = 3  # of a window


class TurnVolumesIntoImages(GraphPass):
    """Replaces each convolution of a batch of volumes with one of images.

    Convolutions stay if both batch and windows are dynamic, or if transposed with a dynamic depth.
    """

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Turn every convolution that can be turned."""
        turned = [node for node in editor.calls(*_ALL) if _can_be_turned(node)]
        for node in turned:
            editor.replace(node, write(editor, _turned, bound_arguments(node), like=node))
            journal.changed(f"{node.name} became a convolution of images")
        if turned:  # results are laid out by windows, so not every shape is a view
            let_views_copy(editor)

    def ensures(self, editor: ProgramEditor) -> None:
        """Raise LoweringError if a convolution along three axes is left: no kernel takes it."""
        for node in editor.calls(*_ALL):
            if fake_value(bound_arguments(node)["weight"]).dim() == _RANK:
                fact = f"{node.name}, {origin(node)}, convolves along three axes, the device two"
                raise LoweringError(editor.place, fact, _ADVICE)


def _is_transposed(given: Mapping[str, Any]) -> bool:
    return bool(given.get("transposed", "output_padding" in given))


def _can_be_turned(node: Node) -> bool:
    given = bound_arguments(node)
    volumes = fake_value(given["input"])
    if fake_value(given["weight"]).dim() != _RANK:
        return False
    if _is_transposed(given):
        return isinstance(volumes.shape[_DEPTH - _RANK], int)
    depth = fake_value(node).shape[_DEPTH - _RANK]
    return volumes.dim() < _RANK or isinstance(volumes.shape[0], int) or isinstance(depth, int)


def _turned(given: Mapping[str, Any]) -> Any:
    """Return the same numbers by a convolution of images."""
    volumes, weight = given["input"], given["weight"]
    if volumes.dim() < _RANK:
        return _turned({**given, "input": volumes[None]})[0]
    if _is_transposed(given):
        return _turned_transposed(given)
    taps = weight.shape[_DEPTH]
    stride, dilation = (for_each_axis(given[name], _AXES) for name in ("stride", "dilation"))
    before, behind, around = _paddings(given["padding"], taps, dilation[0])
    if before or behind:
        volumes = aten.constant_pad_nd.default(volumes, [0, 0, 0, 0, before, behind])
    windows = volumes.unfold(_DEPTH, (taps - 1) * dilation[0] + 1, stride[0])  # N C D' H W reach
    windows = windows[..., :: dilation[0]].permute(0, 2, 1, 5, 3, 4)  # N D' C K H W
    batch, depth = windows.shape[:2]
    images = windows.flatten(2, 3).flatten(0, 1)
    window: Any = (stride[1:], around, dilation[1:], given["groups"])
    found = torch.conv2d(images, weight.flatten(1, 2), given["bias"], *window)
    sizes = (batch, -1) if isinstance(batch, int) else (-1, depth)
    return aten.unflatten.int(found, 0, sizes).transpose(1, 2)


def _turned_transposed(given: Mapping[str, Any]) -> Any:
    """Compute the same by transposed convolutions of images, one for each depth tap."""
    volumes, weight, bias = given["input"], given["weight"], given["bias"]
    stride, padding, dilation, beyond = (
        for_each_axis(given[name], _AXES)
        for name in ("stride", "padding", "dilation", "output_padding")
    )
    depth, taps = volumes.shape[_DEPTH], weight.shape[_DEPTH]
    last = (depth - 1) * stride[0] + (taps - 1) * dilation[0] - 2 * padding[0] + beyond[0]
    images = volumes.permute(0, 2, 1, 3, 4).flatten(0, 1)  # N D C H W
    parts = []
    for tap in range(taps):
        window = (stride[1:], padding[1:], beyond[1:], given["groups"], dilation[1:])
        found = torch.conv_transpose2d(images, weight.select(_DEPTH, tap), None, *window)
        found = aten.unflatten.int(found, 0, (-1, depth))  # N D O H W
        if stride[0] > 1:  # insert zeros between the images
            spread = [0] * 7 + [stride[0] - 1]
            found = aten.constant_pad_nd.default(found.unsqueeze(2), spread).flatten(1, 2)
        before = tap * dilation[0] - padding[0]
        behind = last + 1 - before - depth * stride[0]
        parts.append(aten.constant_pad_nd.default(found, [0] * 6 + [before, behind]))
    total = functools.reduce(torch.add, parts).transpose(1, 2)
    return total if bias is None else total + bias.view(-1, 1, 1, 1)


def _paddings(given: list[int] | str, taps: int, dilation: int) -> tuple[int, int, list[int] | str]:
    """Return the padding before the depth, after it, and of the other axes as for conv2d."""
    if isinstance(given, str):
        reach = dilation * (taps - 1) if given == "same" else 0
        return reach // 2, reach - reach // 2, given  # torch puts the odd one after it
    depth, *others = for_each_axis(given, _AXES)
    return depth, depth, others
