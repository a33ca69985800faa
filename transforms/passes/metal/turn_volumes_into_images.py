"""Convolutions along three axes become convolutions of images, which a GPU's kernels know.

What a window of K places along the first axis sees are K images. Laid one behind the other as
channels they are one image with K times the channels, and the weight, with its first two axes taken
for one, is that image's as it is in memory, whatever the groups:

    (O, C / groups, K, KH, KW)  =  (O, C / groups * K, KH, KW)

So a batch of N volumes with D' windows each is a batch of N D' images.

A transposed convolution is the sum of what each of its K weights of images gives: the results, as
far apart as the stride says, moved by the weight's place.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

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
_ALL = (*_CONVOLUTIONS, aten.conv_transpose3d.input)
_RANK = 5  # of volumes: batch, channels, depth, height, width
_DEPTH = 2
_ADVICE = "Fix the batch or the depth, of a transposed one the depth, or convert for the CPU"
_AXES = 3  # of a window


class TurnVolumesIntoImages(GraphPass):
    """Replaces each convolution of a batch of volumes with one of images.

    Those stay of which neither the batch nor the windows' number is fixed, and transposed ones of a
    dynamic depth.
    """

    name = "turn_volumes_into_images"
    summary = "Replaces Conv3d(x) with Conv2d(Unfold(x))"

    def rewrite(self, editor: ProgramEditor, journal: Journal) -> None:
        """Turn all that can be turned."""
        turned = [node for node in editor.calls(*_ALL) if _can_be_turned(node)]
        for node in turned:
            turn = _turned_transposed if _is_transposed(node) else _turned
            with editor.graph.inserting_before(node):
                editor.replace(node, turn(editor, node, bound_arguments(node)))
            journal.changed(f"{node.name} became a convolution of images")
        if turned:  # results are laid out window by window, of which not every shape is a view
            for view in editor.calls(aten.view.default):
                view.target = aten.reshape.default

    def ensures(self, editor: ProgramEditor) -> None:
        """No convolution is left along three axes: no kernel of the device is.

        Raises:
            LoweringError: one is.
        """
        for node in editor.calls(*_ALL):
            if fake_value(bound_arguments(node)["weight"]).dim() == _RANK:
                fact = f"{node.name}, {origin(node)}, convolves along three axes, the device two"
                raise LoweringError(editor.place, fact, _ADVICE)


def _is_transposed(node: Node) -> bool:
    if node.target is aten.conv_transpose3d.input:
        return True
    return bool(bound_arguments(node).get("transposed", False))


def _can_be_turned(node: Node) -> bool:
    given = bound_arguments(node)
    volumes = fake_value(given["input"])
    if fake_value(given["weight"]).dim() != _RANK or volumes.dim() != _RANK:
        return False
    if _is_transposed(node):
        return isinstance(volumes.shape[_DEPTH], int)
    return any(isinstance(fake_value(node).shape[axis], int) for axis in (0, _DEPTH))


def _turned(editor: ProgramEditor, node: Node, given: Mapping[str, Any]) -> Node:
    """The same numbers by a convolution of images, in front of `node`."""
    call = functools.partial(editor.call, like=node)
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


def _turned_transposed(editor: ProgramEditor, node: Node, given: Mapping[str, Any]) -> Node:
    """The same numbers by transposed convolutions of images, one for each place along the depth."""
    call = functools.partial(editor.call, like=node)
    stride, padding, dilation, beyond = (
        for_each_axis(given[name], _AXES)
        for name in ("stride", "padding", "dilation", "output_padding")
    )
    depth, result_depth = (fake_value(n).shape[_DEPTH] for n in (given["input"], node))
    images = call(aten.permute.default, given["input"], [0, 2, 1, 3, 4])  # N D C H W
    images = call(aten.flatten.using_ints, images, 0, 1)
    parts = []
    for tap in range(fake_value(given["weight"]).shape[_DEPTH]):
        plain = call(aten.select.int, given["weight"], _DEPTH, tap)
        rest = (stride[1:], padding[1:], beyond[1:], given["groups"], dilation[1:])
        with guards_not_noted(editor.fake_mode):
            found = call(aten.conv_transpose2d.input, images, plain, None, *rest)
        found = call(aten.unflatten.int, found, 0, [-1, depth])  # N D O H W
        if stride[0] > 1:  # zeros between the images
            found = call(aten.unsqueeze.default, found, 2)
            found = call(aten.constant_pad_nd.default, found, [0] * 7 + [stride[0] - 1])
            found = call(aten.flatten.using_ints, found, 1, 2)
        before = tap * dilation[0] - padding[0]
        behind = result_depth - before - depth * stride[0]
        parts.append(call(aten.constant_pad_nd.default, found, [0] * 6 + [before, behind]))
    total = functools.reduce(functools.partial(call, aten.add.Tensor), parts)
    total = call(aten.transpose.int, total, 1, 2)
    if given["bias"] is None:
        return total
    return call(aten.add.Tensor, total, call(aten.view.default, given["bias"], [-1, 1, 1, 1]))


def _paddings(given: list[int] | str, taps: int, dilation: int) -> tuple[int, int, list[int] | str]:
    """Of the depth in front and behind, and of the two other axes as conv2d takes it."""
    if isinstance(given, str):
        reach = dilation * (taps - 1) if given == "same" else 0
        return reach // 2, reach - reach // 2, given  # torch puts the odd place behind
    depth, *others = for_each_axis(given, _AXES)
    return depth, depth, others
