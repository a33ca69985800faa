"""Cases of convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from case import FLOATS, Table, floats, short

TABLE = Table()
_CPU = ("cpu",)


def _arguments(
    input_: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **rest: Any
) -> dict[str, Any]:
    axes = input_.dim() - 2
    return {
        "input": input_, "weight": weight, "bias": bias, "stride": [1] * axes,
        "padding": [0] * axes, "dilation": [1] * axes, "transposed": 0,
        "output_padding": [0] * axes, "groups": 1, **rest,
    }  # fmt: skip


def _convolution(**given: Any) -> torch.Tensor:
    given["transposed"] = bool(given["transposed"])
    result: torch.Tensor = torch.ops.aten.convolution(**given)
    return result


def _plain(**given: Any) -> torch.Tensor:
    return F.conv2d(given["X"], given["W"], given["B"], padding=given["padding"])


_LAST = torch.channels_last
_X, _W = floats(2, 4, 9, 8), floats(6, 4, 3, 3)
for name, arguments in (
    ("plain", _arguments(_X, _W)),
    ("with bias", _arguments(_X, _W, floats(6))),
    ("padded and strided", _arguments(_X, _W, stride=[2, 3], padding=[1, 2])),
    ("dilated", _arguments(_X, _W, dilation=[2, 3], padding=[2, 0])),
    ("1 x 1", _arguments(_X, floats(6, 4, 1, 1), floats(6))),
    ("oblong window", _arguments(_X, floats(6, 4, 5, 1), padding=[2, 0])),
    ("grouped", _arguments(_X, floats(6, 2, 3, 3), floats(6), groups=2)),
    ("depthwise", _arguments(_X, floats(4, 1, 3, 3), floats(4), groups=4, padding=[1, 1])),
    ("depthwise, two a channel", _arguments(_X, floats(8, 1, 3, 3), groups=4)),
    ("channels-last image", _arguments(_X.to(memory_format=_LAST), _W, floats(6))),
    ("channels-last weight", _arguments(_X, _W.to(memory_format=_LAST), floats(6))),
    (
        "many channels",
        _arguments(
            floats(2, 20, 17, 19), floats(70, 20, 3, 2).div(11), floats(70),
            stride=[2, 1], padding=[1, 1], dilation=[1, 2],
        ),
    ),
    ("whole tiles", _arguments(floats(1, 16, 8, 8), floats(64, 16, 3, 3).div(12), padding=[1, 1])),
    ("parts of terms", _arguments(floats(2, 128, 7, 7), floats(65, 128, 3, 3).div(34))),
    ("window of 33", _arguments(floats(2, 2, 40), floats(3, 2, 33), padding=[1])),
    *(
        (f"depthwise, {w.shape[2]} x {w.shape[3]}, {by} apart", _arguments(
            floats(2, 3, 12, 13), w, floats(3), groups=3, stride=[by, by],
            padding=[w.shape[2] // 2, w.shape[3] // 2],
        ))
        for *sides, by in ((1, 9, 1), (3, 3, 2), (5, 5, 1), (5, 5, 2), (7, 7, 1))
        for w in [floats(3, 1, *sides)]
    ),
    ("many channels, 1 x 1", _arguments(floats(2, 70, 9, 8), floats(40, 70, 1, 1).div(8))),
    (
        "many channels, 1 x 1, channels last",
        _arguments(floats(2, 70, 9, 8).to(memory_format=_LAST), floats(40, 70, 1, 1).div(8)),
    ),
    ("1 x 1, strided", _arguments(floats(2, 40, 9, 8), floats(6, 40, 1, 1), stride=[2, 2])),
    ("one pixel", _arguments(floats(1, 4, 1, 1), floats(6, 4, 1, 1))),
    ("empty batch", _arguments(floats(0, 4, 5, 5), _W, floats(6))),
    ("sequence", _arguments(floats(2, 4, 9), floats(6, 4, 3), floats(6), padding=[1])),
    ("strided sequence", _arguments(floats(2, 4, 19), floats(6, 4, 5), stride=[3])),
    ("depthwise sequence", _arguments(floats(1, 4, 9), floats(4, 1, 5), groups=4, padding=[2])),
    ("transposed", _arguments(_X, floats(4, 6, 3, 3), floats(6), transposed=1)),
    (
        "transposed, strided, with output padding",
        _arguments(
            _X, floats(4, 6, 3, 3), floats(6), transposed=1, stride=[2, 3], padding=[1, 0],
            output_padding=[1, 2],
        ),
    ),
    ("transposed, grouped", _arguments(_X, floats(4, 3, 2, 2), transposed=1, groups=2)),
    ("transposed, dilated", _arguments(_X, floats(4, 6, 3, 3), transposed=1, dilation=[2, 2])),
    ("transposed sequence", _arguments(floats(2, 4, 9), floats(4, 6, 3), transposed=1, stride=[2])),
    ("one image for all", _arguments(floats(1, 4, 9, 8).expand(2, 4, 9, 8), _W)),
    ("one colour for all channels", _arguments(floats(2, 1, 9, 8).expand(2, 4, 9, 8), _W)),
    ("overlapping lines", _arguments(floats(2, 4, 16).unfold(2, 8, 1), _W)),
    ("one window for all channels", _arguments(_X, floats(3, 3).expand(4, 1, 3, 3), groups=4)),
    ("window of 300", _arguments(floats(2, 2, 330), floats(3, 2, 300), floats(3), padding=[1])),
    ("128 places a window", _arguments(floats(3, 2, 140), floats(4, 2, 128), floats(4))),
    ("transposed window of 256", _arguments(floats(2, 2, 4), floats(2, 3, 256), transposed=1)),
    ("longest output", _arguments(floats(1, 1, 65540), floats(1, 1, 1))),
    ("overlapping sequences", _arguments(floats(2, 12).unfold(1, 9, 1), floats(6, 4, 3))),
):  # fmt: skip
    TABLE.add("convolution", name, arguments, _convolution, tolerance=1e-4)
    if arguments["input"].numel() > 10_000:  # what is below, plain loops compute
        continue
    for dtype in (torch.float64, torch.int64):
        others = {
            key: (value * 3).to(dtype) if isinstance(value, torch.Tensor) else value
            for key, value in arguments.items()
        }
        TABLE.add("convolution", f"{name}, {short(dtype)}", others, _convolution)
TABLE.add(
    "convolution",
    "volume",
    _arguments(floats(1, 2, 5, 6, 7), floats(3, 2, 2, 3, 2), floats(3)),
    _convolution,
    tolerance=1e-4,
    targets=_CPU,
)
for dtype in FLOATS[1:]:
    TABLE.add(
        "convolution",
        short(dtype),
        _arguments(_X.to(dtype), _W.to(dtype), floats(6, dtype=dtype)),
        _convolution,
        tolerance=2e-2,
    )

_ACTIVATIONS: tuple[tuple[str, list[float], str | None, Any], ...] = (
    ("none", [], None, lambda x: x),
    ("relu", [], None, torch.relu),
    ("hardtanh", [0.0, 6.0], None, F.relu6),
    ("gelu", [], "none", F.gelu),
    ("gelu", [], "tanh", lambda x: F.gelu(x, approximate="tanh")),
    ("swish", [], None, F.silu),
    ("sigmoid", [], None, torch.sigmoid),
    ("tanh", [], None, torch.tanh),
    ("hardswish", [], None, F.hardswish),
    ("hardsigmoid", [], None, F.hardsigmoid),
)
for attr, scalars, algorithm, function in _ACTIVATIONS:
    TABLE.add(
        "mkldnn__convolution_pointwise",
        f"{attr} {algorithm or ''}",
        {
            "X": _X, "W": _W, "B": floats(6), "padding": [1, 1], "stride": [1, 1],
            "dilation": [1, 1], "groups": 1, "attr": attr, "scalars": scalars,
            "algorithm": algorithm,
        },
        lambda function=function, **given: function(_plain(**given)),
        tolerance=1e-4,
        targets=_CPU,
    )  # fmt: skip
for change, fact in (
    ({"groups": 3}, "do not fit"),
    ({"groups": 0}, "groups must be at least 1, not 0"),
    ({"stride": [0, 1]}, "stride 0 is less than 1"),
    ({"dilation": [9, 9]}, "is larger than"),
    ({"bias": floats(5)}, "bias"),
    ({"weight": floats(6, 4, 3)}, "do not fit"),
    ({"weight": _W.half()}, "dtype"),
):
    TABLE.refuse("convolution", fact, **(_arguments(_X, _W) | change))


def _expanded(**given: Any) -> torch.Tensor:
    """By eager, one after the other."""
    functions = {"none": lambda x: x, "relu": torch.relu, "swish": F.silu, "tanh": torch.tanh}
    functions["hardtanh"] = lambda x: F.hardtanh(x, 0.0, 1.5)
    window = [given[f"expansion_{name}"] for name in ("stride", "padding", "dilation")]
    inner = F.conv2d(given["input"], given["expansion"], given["expansion_bias"], *window)
    inner = inner if given["rows"] is None else inner * given["rows"]
    inner = functions[given["expansion_activation"]](inner)
    window = [given[name] for name in ("stride", "padding", "dilation")]
    outer = F.conv2d(inner, given["weight"], given["bias"], *window, inner.shape[1])
    return functions[given["activation"]](outer)


# Weights that are no constants are multiplied one convolution after the other.
_BLOCK: dict[str, Any] = {
    "input": _X.to(memory_format=_LAST), "expansion": floats(9, 4, 1, 1),
    "expansion_bias": floats(9), "expansion_stride": [1, 1], "expansion_padding": [0, 0],
    "expansion_dilation": [1, 1], "rows": None, "expansion_activation": "hardtanh",
    "expansion_scalars": [0.0, 1.5], "weight": floats(9, 1, 3, 3), "bias": floats(9, seed=1),
    "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "activation": "relu", "scalars": [],
}  # fmt: skip
_SILU = {"expansion_activation": "swish", "expansion_scalars": [], "activation": "swish"}
for name, changed in (
    ("plain", {}),
    ("no bias", {"expansion_bias": None, "bias": None}),
    ("steps", {"stride": [2, 3], "padding": [2, 0], "dilation": [1, 2]}),
    ("silu", _SILU),
    ("none, tanh", {"expansion_activation": "none", "expansion_scalars": [], "activation": "tanh"}),
    ("of rows", {"input": _X}),
    ("rows by factors", {"rows": floats(_X.shape[0], 1, _X.shape[2], 1)}),
    ("rows by a factor each image", {"rows": floats(_X.shape[0], 1, 1, 1)}),
    (
        "windows",
        {
            "expansion": floats(9, 4, 3, 2),
            "expansion_stride": [2, 1],
            "expansion_padding": [3, 1],
            "expansion_dilation": [2, 1],
        },
    ),
):
    TABLE.add("expanded_depthwise", name, _BLOCK | changed, _expanded, tolerance=1e-4, targets=_CPU)
for fact, changed in (
    ("do not fit", {"expansion": floats(9, 5, 1, 1)}),
    ("do not fit", {"weight": floats(7, 1, 3, 3)}),
    ("the bias must have 9 elements", {"bias": floats(8)}),
    ("is larger than input", {"weight": floats(9, 1, 12, 3)}),
    ("must be one for each row", {"rows": floats(1, 9, 1, 1)}),
    ("must be one for each row", {"rows": floats(1, 1, 1, 2)}),
    ("must be one for each row", {"rows": floats(1, 1, 3, 1)}),
    ("must be one for each row", {"rows": floats(3, 1, 1)}),
    ("stride 0 is less than 1", {"expansion_stride": [0, 1]}),
):
    TABLE.refuse("expanded_depthwise", fact, **(_BLOCK | changed))
