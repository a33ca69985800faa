"""Convolutions along three axes become convolutions of images, which a GPU's kernels know.

What a window of K places along the first axis sees are K images. Laid one behind the other as
channels they are one image with K times the channels, and the weight, with its first two axes taken
for one, is that image's as it is in memory, whatever the groups:

    (O, C / groups, K, KH, KW)  =  (O, C / groups * K, KH, KW)

So a batch of N volumes with D' windows each is a batch of N D' images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._dispatch.python import enable_python_dispatcher

from transforms.graph.editor import fake_value
from transforms.graph.graph_pass import GraphPass, Journal
from transforms.graph.guards import guards_not_noted
from transforms.graph.record import origin
from transforms.graph.schemas import bound_arguments, for_each_axis
from zoo.errors import LoweringError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.fx import Node

    from transforms.graph.editor import ProgramEditor

aten = torch.ops.aten

_CONVOLUTIONS = (aten.conv3d.default, aten.conv3d.padding, aten.convolution.default)
_REFUSED = (*_CONVOLUTIONS, aten.conv_transpose3d.input)
_RANK = 5  # of volumes: batch, channels, depth, height, width
_DEPTH = 2
_ADVICE = "Fix the batch or the depth, or convert for the CPU; transposed ones are the CPU's"
_AXES = 3  # of a window


class TurnVolumesIntoImages(GraphPass):
    """Replaces each convolution of a batch of volumes with one of images.

    Transposed ones stay, and those of which neither the batch nor the windows' number is fixed.
    """

    name = "turn_volumes_into_images"
    summary = "Replaces Conv3d(x) with Conv2d(Unfold(x))"

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Turn all that can be turned."""
        turned = [n for n in editor.calls(*_CONVOLUTIONS) if _can_be_turned(n, bound_arguments(n))]
        for node in turned:
            with editor.graph.inserting_before(node):
                editor.replace(node, _turned(editor, node, bound_arguments(node)))
            journal.changed(f"{node.name} became a convolution of images")
        if turned:  # results are laid out window by window, of which not every shape is a view
            for view in editor.calls(aten.view.default):
                view.target = aten.reshape.default

    def ensures(self, editor: ProgramEditor) -> None:
        """No convolution is left along three axes: no kernel of the device is.

        Raises:
            LoweringError: one is.
        """
        for node in editor.calls(*_REFUSED):
            if fake_value(bound_arguments(node)["weight"]).dim() == _RANK:
                fact = f"{node.name}, {origin(node)}, convolves along three axes, the device two"
                raise LoweringError(editor.place, fact, _ADVICE)


def _can_be_turned(node: Node, given: Mapping[str, Any]) -> bool:
    shape, images = fake_value(given["weight"]).shape, fake_value(given["input"])
    if len(shape) != _RANK or images.dim() != _RANK or given.get("transposed", False):
        return False
    return any(isinstance(fake_value(node).shape[axis], int) for axis in (0, _DEPTH))


def _turned(editor: ProgramEditor, node: Node, given: Mapping[str, Any]) -> Node:
    """The same numbers by a convolution of images, in front of `node`."""

    def call(target: Any, *args: Any) -> Node:
        with enable_python_dispatcher():  # padding in C++ asks dynamic sizes for their values
            return editor.call(target, *args, like=node)

    weight = given["weight"]
    taps = fake_value(weight).shape[_DEPTH]
    stride, dilation = (for_each_axis(given[name], _AXES) for name in ("stride", "dilation"))
    before, behind, around = _paddings(given["padding"], taps, dilation[0])
    volumes = given["input"]
    if before or behind:
        volumes = call(aten.constant_pad_nd.default, volumes, [0, 0, 0, 0, before, behind])
    reach = (taps - 1) * dilation[0] + 1
    windows = call(aten.unfold.default, volumes, _DEPTH, reach, stride[0])  # N C D' H W reach
    if dilation[0] > 1:
        windows = call(aten.slice.Tensor, windows, -1, 0, reach, dilation[0])
    windows = call(aten.permute.default, windows, [0, 2, 1, 5, 3, 4])  # N D' C K H W
    images = call(aten.flatten.using_ints, call(aten.flatten.using_ints, windows, 2, 3), 0, 1)
    plain = call(aten.flatten.using_ints, weight, 1, 2)
    convolve = aten.conv2d.padding if isinstance(around, str) else aten.conv2d.default
    rest = (stride[1:], around, dilation[1:], given["groups"])
    # Torch looks for a CPU's kernel by the number of images.
    with guards_not_noted(editor.fake_mode):
        found = call(convolve, images, plain, given["bias"], *rest)
    batch, _, depth, *_ = fake_value(node).shape
    sizes = [batch, -1] if isinstance(batch, int) else [-1, depth]
    return call(aten.transpose.int, call(aten.unflatten.int, found, 0, sizes), 1, 2)


def _paddings(given: list[int] | str, taps: int, dilation: int) -> tuple[int, int, list[int] | str]:
    """Of the depth in front and behind, and of the two other axes as conv2d takes it."""
    if isinstance(given, str):
        reach = dilation * (taps - 1) if given == "same" else 0
        return reach // 2, reach - reach // 2, given  # torch puts the odd place behind
    depth, *others = for_each_axis(given, _AXES)
    return depth, depth, others
