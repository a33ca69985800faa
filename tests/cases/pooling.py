"""Cases of pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from case import FLOATS, Refusal, Table, floats, integers, numbers, short

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = Table()
aten = torch.ops.aten


def _windows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Sliding windows over images of 9 x 7."""
    for name, kernel, stride, padding, ceil_mode in (
        ("square", [2, 2], [], [0, 0], 0),
        ("padded", [3, 3], [2, 2], [1, 1], 0),
        ("oblong", [4, 2], [1, 3], [2, 0], 0),
        ("rounded up", [3, 2], [2, 2], [1, 0], 1),
        ("one number for both axes", [3], [2], [1], 1),
        ("the whole image", [9, 7], [1, 1], [0, 0], 0),
    ):
        yield (
            name,
            {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode},
        )


def _average(self: torch.Tensor, **window: Any) -> torch.Tensor:
    pool = F.avg_pool3d if len(window["kernel_size"]) == 3 else F.avg_pool2d
    window["ceil_mode"] = bool(window["ceil_mode"])
    window["count_include_pad"] = bool(window["count_include_pad"])
    return pool(self, stride=window.pop("stride") or None, **window)


def _largest(self: torch.Tensor, **window: Any) -> tuple[torch.Tensor, torch.Tensor]:
    three = len(window["kernel_size"]) == 3
    pool = F.max_pool3d_with_indices if three else F.max_pool2d_with_indices
    window["ceil_mode"] = bool(window["ceil_mode"])
    return pool(self, stride=window.pop("stride") or None, **window)


_IMAGES = floats(2, 3, 9, 7)
for name, window in _windows():
    for padded, divisor in ((1, None), (0, None), (1, 5)):
        TABLE.add(
            "avg_pool2d",
            f"{name}, {'with' if padded else 'without'} padding, divisor {divisor}",
            {"self": _IMAGES, **window, "count_include_pad": padded, "divisor_override": divisor},
            _average,
            strides=True,
        )
    for dilation in (1, 2) if name != "the whole image" else (1,):
        TABLE.add(
            "max_pool2d_with_indices",
            f"{name}, dilation {dilation}",
            {"self": _IMAGES, **window, "dilation": [dilation]},
            _largest,
            strides=True,
        )
_PLAIN = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1], "ceil_mode": 0}
for dtype in (*FLOATS, torch.int64, torch.uint8):
    image = numbers(2, 6, 5, dtype=dtype)  # without a batch
    if dtype.is_floating_point:
        TABLE.add(
            "avg_pool2d",
            f"{short(dtype)}, no batch",
            {"self": image, **_PLAIN, "count_include_pad": 1, "divisor_override": None},
            _average,
            strides=True,
        )
    TABLE.add(
        "max_pool2d_with_indices",
        f"{short(dtype)}, no batch",
        {"self": image, **_PLAIN, "dilation": [1]},
        _largest,
        strides=True,
    )
_WITH_NAN = torch.tensor([[[1.0, torch.nan, 2.0, 3.0], [3.0, 2.0, -torch.inf, 0.0]]])
TABLE.add(
    "max_pool2d_with_indices", "NaN wins", {"self": _WITH_NAN, **_PLAIN, "dilation": [1]}, _largest
)

_VOLUMES = floats(2, 3, 5, 6, 7)
for name, window in (
    ("cube", {"kernel_size": [2, 2, 2], "stride": [], "padding": [0, 0, 0], "ceil_mode": 0}),
    ("padded", {"kernel_size": [3, 2, 3], "stride": [2], "padding": [1, 0, 1], "ceil_mode": 1}),
):
    TABLE.add(
        "avg_pool3d",
        name,
        {"self": _VOLUMES, **window, "count_include_pad": 0, "divisor_override": None},
        _average,
    )
    TABLE.add(
        "max_pool3d_with_indices",
        name,
        {"self": _VOLUMES, **window, "dilation": [1, 1, 1]},
        _largest,
    )

_NO_IMAGES = floats(0, 3, 9, 7)
TABLE.add(
    "avg_pool2d",
    "no images",
    {"self": _NO_IMAGES, **_PLAIN, "count_include_pad": 1, "divisor_override": None},
    _average,
)
TABLE.add(
    "max_pool2d_with_indices",
    "no images",
    {"self": _NO_IMAGES, **_PLAIN, "dilation": [1]},
    _largest,
)
TABLE.add(
    "_adaptive_avg_pool2d",
    "no images",
    {"self": _NO_IMAGES, "output_size": [2, 3]},
    aten._adaptive_avg_pool2d,
)
TABLE.add(
    "adaptive_max_pool2d",
    "no images",
    {"self": _NO_IMAGES, "output_size": [2, 3]},
    aten.adaptive_max_pool2d,
)

for size in ([1, 1], [2, 3], [4, 4], [11, 5]):
    for image in (_IMAGES, floats(3, 4, 6)):
        where = f"{size} of {tuple(image.shape)}"
        arguments = {"self": image, "output_size": size}
        TABLE.add("_adaptive_avg_pool2d", where, arguments, aten._adaptive_avg_pool2d, strides=True)
        TABLE.add("adaptive_max_pool2d", where, arguments, aten.adaptive_max_pool2d, strides=True)
for dtype in FLOATS[1:]:
    TABLE.add(
        "_adaptive_avg_pool2d",
        short(dtype),
        {"self": floats(2, 3, 6, 5, dtype=dtype), "output_size": [2, 2]},
        aten._adaptive_avg_pool2d,
    )

_SUM = {"count_include_pad": 1, "divisor_override": None}
_AROUND = {**_PLAIN, "padding": [2, 2]}
TABLE.refuse("avg_pool2d", "do not fit together", self=_IMAGES, **_AROUND, **_SUM)
TABLE.refuse(
    "max_pool2d_with_indices", "is the whole input of 2", self=floats(1, 1, 2, 2),
    kernel_size=[2], stride=[1], padding=[1], ceil_mode=0, dilation=[3],
)  # fmt: skip
_WHOLE = {"self": integers(2, 6, 5, low=-9), **_PLAIN, **_SUM}
TABLE.add("avg_pool2d", "integers", _WHOLE, _average)
_BYTES = {**_WHOLE, "self": numbers(2, 6, 5, dtype=torch.uint8)}
TABLE.refusals.append(Refusal("avg_pool2d", "averages are not of uint8", _BYTES, ("metal",)))
TABLE.refuse(
    "avg_pool2d", "larger than the input", self=floats(1, 1, 1, 1),
    **{**_PLAIN, "padding": [0, 0]}, **_SUM,
)  # fmt: skip
TABLE.refuse(
    "max_pool2d_with_indices", "must have 3 or 4 axes", self=floats(3, 3), **_PLAIN, dilation=[1]
)
TABLE.refuse("_adaptive_avg_pool2d", "must have 3 or 4 axes", self=floats(3, 2), output_size=[1, 1])
TABLE.refuse("_adaptive_avg_pool2d", "two numbers", self=_IMAGES, output_size=[1])
TABLE.refuse("adaptive_max_pool2d", "is empty", self=floats(1, 2, 0, 3), output_size=[1, 1])
