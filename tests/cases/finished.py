"""Cases of products and convolutions with what follows them, which only Metal's runtime has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from case import FLOATS, Table, floats, short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TABLE = Table()
_METAL = ("metal",)
_MOST = 4

# What kernels/steps.h says of each step's number: what eager makes of x.
_ACTIVATIONS: tuple[tuple[int, float, float, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    (0, 0, 0, torch.relu),
    (1, 0.1, 0, lambda x: F.leaky_relu(x, 0.1)),
    (2, -0.5, 1.5, lambda x: x.clamp(-0.5, 1.5)),
    (2, 0, torch.inf, lambda x: x.clamp(0, None)),
    (2, 0.5, -0.5, lambda x: x.clamp(0.5, -0.5)),
    (3, 0, 0, F.gelu),
    (4, 0, 0, lambda x: F.gelu(x, approximate="tanh")),
    (5, 0, 0, F.silu),
    (6, 0, 0, torch.sigmoid),
    (7, 0, 0, torch.tanh),
    (8, 0, 0, F.hardswish),
    (9, 0, 0, F.hardsigmoid),
    (10, -2, 0.5, lambda x: 0.5 - 2 * x),
)
_RELU, _AFFINE, _ADD, _MULTIPLY = (0, 0, 0), (10, 0.5, 0), (11, 1, 0), (12, 0, 0)


def _finish(
    steps: Sequence[tuple[int, float, float]], other: torch.Tensor | None
) -> dict[str, Any]:
    numbers = ([step[i] for step in steps] for i in range(3))
    return {**dict(zip(("steps", "low", "high"), numbers, strict=True)), "other": other}


def _matrices(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> dict[str, Any]:
    return {"a": a, "b": b, "bias": bias}


def _images(
    input_: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **rest: Any
) -> dict[str, Any]:
    axes = input_.dim() - 2
    plain = {"stride": [1] * axes, "padding": [0] * axes, "dilation": [1] * axes, "groups": 1}
    return {"input": input_, "factor": None, "weight": weight, "bias": bias} | plain | rest


def _product(given: dict[str, Any]) -> torch.Tensor:
    """In float64: what is finished is not rounded before."""
    result = given["a"].double() @ given["b"].double()
    return result if given["bias"] is None else result + given["bias"].double()


def _convolution(given: dict[str, Any]) -> torch.Tensor:
    wide = [
        t if t is None else t.double() for t in (given["input"], given["weight"], given["bias"])
    ]
    if given["factor"] is not None:
        wide[0] = wide[0] * given["factor"].double()
    is_depthwise = wide[1].shape[:2] == (given["groups"], 1)
    if is_depthwise and wide[0].shape[1] == 2 * given["groups"]:  # gated, and masked
        wide[0] = F.glu(wide[0], 1).masked_fill(given["other"] != 0, 0)
    spatial = [given[name] for name in ("stride", "padding", "dilation")]
    transposed: tuple[Any, ...] = (False, [0] * len(given["stride"]))
    return torch.ops.aten.convolution(*wide, *spatial, *transposed, given["groups"])


def _add(
    name: str,
    operands: dict[str, Any],
    steps: Sequence[tuple[int, float, float]],
    eager: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    other: torch.Tensor | None = None,
) -> None:
    """A case; `eager` takes the product and the other operand, in float64."""
    images = "input" in operands

    def expected(**given: Any) -> torch.Tensor:
        beside = given["other"]
        wide = torch.zeros(()) if beside is None else beside.double()
        result = eager((_convolution if images else _product)(given), wide)
        return result.to(given["input" if images else "a"].dtype)

    operator = "finished_convolution" if images else "finished_product"
    TABLE.add(
        operator, name, operands | _finish(steps, other), expected, tolerance=1e-4, targets=_METAL
    )


# Each step, behind a kernel of tiles, of vectors, of a depthwise convolution, of a plain one.
for number, low, high, activation in _ACTIVATIONS:
    for name, given in (
        ("matrices", _matrices(floats(3, 7), floats(7, 5, seed=1), floats(5))),
        (
            "images",
            _images(floats(1, 4, 5, 4), floats(6, 4, 3, 3).div(6), floats(6), padding=[1, 1]),
        ),
    ):
        _add(
            f"{name}, step {number}, {low}, {high}", given, [(number, low, high)],
            lambda x, _, activation=activation: activation(x),
        )  # fmt: skip

# NaN and infinities, and numbers whose powers overflow.
_EXTREMES = torch.tensor([torch.inf, -torch.inf, torch.nan, 1e30, -1e30])[:, None]
for number, low, high, activation in _ACTIVATIONS:
    _add(
        f"infinities, step {number}, {low}, {high}", _matrices(_EXTREMES, torch.ones(1, 3)),
        [(number, low, high)], lambda x, _, activation=activation: activation(x),
    )  # fmt: skip

_LAST = torch.channels_last
_PRODUCTS = (
    ("tiles", _matrices(floats(70, 40).div(6), floats(40, 90, seed=1), floats(90)), (70, 90)),
    ("a row by rows", _matrices(floats(1, 60).div(8), floats(60, 70, seed=1)), (1, 70)),
    ("a row by columns", _matrices(floats(1, 60).div(8), floats(70, 60, seed=1).t()), (1, 70)),
    ("a column", _matrices(floats(70, 60).div(8), floats(60, 1, seed=1), floats(1)), (70, 1)),
    ("a batch", _matrices(floats(2, 9, 6), floats(2, 6, 5, seed=1)), (2, 9, 5)),
    ("a batch of rows", _matrices(floats(2, 1, 6), floats(2, 6, 5, seed=1)), (2, 1, 5)),
    ("a batch of columns", _matrices(floats(2, 9, 6), floats(2, 6, 1, seed=1)), (2, 9, 1)),
    (
        "shared terms",
        _matrices(floats(9, 2055).div(45), floats(2055, 40, seed=1), floats(40)),
        (9, 40),
    ),
    (
        "a batch of shared terms",
        _matrices(floats(2, 3, 2600).div(51), floats(2, 5, 2600, seed=1).mT),
        (2, 3, 5),
    ),
    ("no terms", _matrices(floats(3, 0), floats(0, 4), floats(4)), (3, 4)),
    ("nothing", _matrices(floats(0, 3), floats(3, 4), floats(4)), (0, 4)),
)
_X = floats(2, 4, 9, 8)
_CONVOLUTIONS = (
    ("window", _images(_X, floats(6, 4, 3, 3).div(6), floats(6), padding=[1, 1]), (2, 6, 9, 8)),
    ("1 x 1", _images(_X, floats(6, 4, 1, 1), floats(6)), (2, 6, 9, 8)),
    ("1 x 1, channels last", _images(_X.to(memory_format=_LAST), floats(6, 4, 1, 1)), (2, 6, 9, 8)),
    (
        "depthwise",
        _images(_X, floats(4, 1, 3, 3), floats(4), groups=4, stride=[2, 1]),
        (2, 4, 4, 6),
    ),
    ("grouped, a result each", _images(_X, floats(2, 2, 3, 3), groups=2), (2, 2, 7, 6)),
    ("grouped", _images(_X, floats(6, 2, 3, 3), groups=2), (2, 6, 7, 6)),
    ("one place", _images(floats(2, 8, 1, 1), floats(6, 8, 1, 1), floats(6)), (2, 6, 1, 1)),
    (
        "grouped, in tiles",
        _images(
            floats(2, 9, 9, 8), floats(51, 3, 3, 3).div(5), floats(51), groups=3, padding=[1, 1]
        ),
        (2, 51, 9, 8),
    ),
    (
        "1 x 1, grouped, in tiles, channels last",
        _images(floats(2, 8, 9, 8).to(memory_format=_LAST), floats(80, 4, 1, 1), groups=2),
        (2, 80, 9, 8),
    ),
    (
        "grouped, many terms in tiles",
        _images(floats(2, 80, 5, 5), floats(32, 40, 5, 5).div(32), floats(32), groups=2),
        (2, 32, 1, 1),
    ),
    ("sequence", _images(floats(2, 4, 9), floats(6, 4, 3), floats(6), padding=[1]), (2, 6, 9)),
    ("depthwise sequence", _images(floats(1, 4, 9), floats(4, 1, 5), groups=4), (1, 4, 5)),
    ("empty batch", _images(floats(0, 4, 5, 4), floats(3, 4, 1, 1), floats(3)), (0, 3, 5, 4)),
)
for name, given, sizes in (*_PRODUCTS, *_CONVOLUTIONS):
    _add(
        f"{name}, residual",
        given,
        [_ADD, _RELU],
        lambda x, o: (x + o).relu(),
        floats(*sizes, seed=2),
    )
    _add(
        f"{name}, half of it added", given, [_AFFINE, (11, -2, 0)], lambda x, o: 0.5 * x - 2 * o,
        floats(*sizes, seed=2),
    )  # fmt: skip
    for axis in range(len(sizes)):
        broadcast = [1] * len(sizes)
        broadcast[axis] = sizes[axis]
        _add(
            f"{name}, factors along {axis}", given, [_MULTIPLY], lambda x, o: x * o,
            floats(*broadcast, seed=2),
        )  # fmt: skip
_add(
    "four steps", _matrices(floats(5, 7), floats(7, 3)), [_RELU, _AFFINE, _ADD, (6, 0, 0)],
    lambda x, o: (x.relu() * 0.5 + o).sigmoid(), floats(3),
)  # fmt: skip
_add("none", _matrices(floats(5, 7), floats(7, 3), floats(3)), [], lambda x, _: x)
for dtype in FLOATS[1:]:
    half = {"a": floats(40, 70).div(8), "b": floats(70, 50, seed=1), "bias": floats(50)}
    _add(
        f"product, {short(dtype)}", {k: v.to(dtype) for k, v in half.items()}, [(3, 0, 0), _ADD],
        lambda x, o: F.gelu(x) + o, floats(40, 50, dtype=dtype),
    )  # fmt: skip
    for name, of in (("vector", (1, 60)), ("window", ())):
        operands = (
            _matrices(floats(*of, dtype=dtype).div(8), floats(60, 30, dtype=dtype))
            if of
            else _images(_X.to(dtype), floats(6, 4, 3, 3, dtype=dtype).div(6))
        )
        _add(f"{name}, {short(dtype)}", operands, [(8, 0, 0)], lambda x, _: F.hardswish(x))

# Each with factors of its input's channels: read with the images, or multiplied before.
_WIDE = floats(2, 40, 9, 8).div(6)
for name, given in (
    ("1 x 1", _images(_X, floats(6, 4, 1, 1), floats(6))),
    ("1 x 1, channels last", _images(_X.to(memory_format=_LAST), floats(6, 4, 1, 1))),
    ("1 x 1, large tiles", _images(_WIDE, floats(70, 40, 1, 1), floats(70))),
    ("1 x 1 in steps", _images(_X, floats(6, 4, 1, 1), stride=[2, 2])),
    ("window", _images(_X, floats(6, 4, 3, 3).div(6), padding=[1, 1])),
    ("depthwise, channels last", _images(_X.to(memory_format=_LAST), floats(4, 1, 3, 3), groups=4)),
):
    channels = given["input"].shape[1]
    for images in (1, 2):
        factor = floats(images, channels, 1, 1, seed=3)
        _add(
            f"{name}, {images} factors", given | {"factor": factor}, [_RELU], lambda x, _: x.relu()
        )
for dtype in FLOATS[1:]:
    given = _images(_X.to(dtype), floats(6, 4, 1, 1, dtype=dtype).div(4))
    factor = floats(2, 4, 1, 1, dtype=dtype, seed=3)
    _add(f"factors, {short(dtype)}", given | {"factor": factor}, [], lambda x, _: x)

for dtype in FLOATS:
    for name, mask in (("places", floats(2, 1, 11) > 0), ("elements", floats(2, 3, 11) > 0)):
        values = floats(2, 6, 11, dtype=dtype)
        values[mask.expand(2, 3, 11).repeat(1, 2, 1)] = torch.nan
        turned = values.mT.contiguous().mT
        for stored, input_ in (("", values), (", turned", turned)):
            weights = floats(3, 1, 9, dtype=dtype), floats(3, dtype=dtype)
            _add(
                f"gated, mask of {name}, {short(dtype)}{stored}",
                _images(input_, *weights, groups=3, padding=[4]), [(7, 0, 0)],
                lambda x, _: x.tanh(), mask.to(dtype),
            )  # fmt: skip
for width, padding, other in ((5, 2, floats(1, 1, 1)), (9, 3, floats(1, 1, 1)), (9, 4, None)):
    given = _images(floats(1, 6, 9), floats(3, 1, width), groups=3, padding=[padding])
    TABLE.refuse("finished_convolution", "no kernel gates", **given, **_finish([], other))

_GIVEN = _matrices(floats(2, 4), floats(4, 3))
for fact, changed in (
    ("there is no step 13", _finish([(13, 0, 0)], None)),
    ("there is no step -1", _finish([(-1, 0, 0)], None)),
    ("step 11 has no operand", _finish([_ADD], None)),
    ("4 are the most", _finish([_RELU] * (_MOST + 1), None)),
    ("4 are the most", _finish([_RELU], None) | {"low": []}),
    ("does not have the dtype", _finish([_ADD], floats(3).half())),
    ("shapes do not fit", _finish([], None) | {"b": floats(5, 3)}),
    ("shapes do not fit", _finish([], None) | {"a": floats(4)}),
    ("dtypes differ", _finish([], None) | {"b": floats(4, 3).half()}),
):
    TABLE.refuse("finished_product", fact, **(_GIVEN | changed))
_HALF = floats(2, 4, 1, 1).half()
TABLE.refuse(
    "finished_convolution",
    "the factor",
    **_images(_X, floats(6, 4, 1, 1), factor=_HALF),
    **_finish([], None),
)
TABLE.refuse(
    "finished_convolution",
    "has no operand",
    **_images(_X, floats(6, 4, 1, 1)),
    **_finish([_ADD], None),
)


def _squeezed(**given: Any) -> torch.Tensor:
    """Of whatever dtype in float64."""
    wide = {k: t.double() if isinstance(t, torch.Tensor) else t for k, t in given.items()}
    means = wide["images"].mean((2, 3), keepdim=True)
    middle = F.conv2d(means, wide["down"], wide["down_bias"]).relu()
    made = F.conv2d(middle, wide["up"], wide["up_bias"])
    return F.hardsigmoid(made).to(given["images"].dtype)


for name, sizes, (middle, results), dtype in (
    ("more results than a group has", (1, 3, 20, 20), (70, 300), torch.float32),
    ("places", (3, 130, 1, 1), (1, 2), torch.float32),
    ("nothing", (0, 4, 2, 2), (3, 4), torch.float32),
    *((short(dtype), (2, 20, 5, 7), (6, 20), dtype) for dtype in reversed(FLOATS)),
):
    _SQUEEZE = {
        "images": floats(*sizes, dtype=dtype), "down": floats(middle, sizes[1], 1, 1, dtype=dtype),
        "down_bias": floats(middle, dtype=dtype), "up": floats(results, middle, 1, 1, dtype=dtype),
        "up_bias": floats(results, dtype=dtype) if sizes[0] > 1 else None,
        **_finish([_RELU, (9, 0, 0)], None), "first": 1,
    }  # fmt: skip
    del _SQUEEZE["other"]
    TABLE.add("squeeze", name, _SQUEEZE, _squeezed, tolerance=1e-4, targets=_METAL)
for changed in (
    {"first": 3},
    {"up": floats(4, 5, 1, 1)},
    {"up": floats(20, 6, 2, 1)},
    {"up": floats(20, 6)},
    {"up": floats(20, 6, 1, 1, dtype=torch.float16)},
    {"down_bias": floats(5)},
    {"up_bias": floats(20, dtype=torch.float16)},
):
    TABLE.refuse("squeeze", "a squeeze of", **(_SQUEEZE | changed))
