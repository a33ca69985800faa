"""Convolution shims against eager PyTorch, over random shapes, strides, offsets and layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

small = settings(max_examples=60, deadline=None)


@st.composite
def strided(draw: st.DrawFn, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of that shape whose memory is permuted, padded, shifted or shared along an axis."""
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    order = draw(st.permutations(range(len(shape))))
    pads = [draw(st.integers(0, 2)) for _ in shape]
    whole = torch.randn(
        [shape[a] + p for a, p in zip(order, pads, strict=True)], generator=generator
    )
    for axis, pad in enumerate(pads):
        whole = whole.narrow(axis, draw(st.integers(0, pad)), whole.shape[axis] - pad)
    value = whole.permute([order.index(a) for a in range(len(shape))])
    if draw(st.booleans()):
        axis = draw(st.integers(0, len(shape) - 1))
        value = value.narrow(axis, 0, 1).expand(shape) if shape[axis] else value
    return value


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of aten.convolution that fit together."""
    spatial = draw(st.integers(1, 2))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    transposed = draw(st.booleans())
    inner, outer = (groups * draw(st.integers(1, 4)) for _ in range(2))
    window = [draw(st.integers(1, 3)) for _ in range(spatial)]
    stride = [draw(st.integers(1, 3)) for _ in range(spatial)]
    dilation = [draw(st.integers(1, 2)) for _ in range(spatial)]
    padding = [draw(st.integers(0, 2)) for _ in range(spatial)]
    extra = [
        draw(st.integers(0, max(s, d) - 1)) if transposed else 0
        for s, d in zip(stride, dilation, strict=True)
    ]
    size = [
        draw(st.integers(max(1, d * (w - 1) + 1 - 2 * p), 9))
        for w, d, p in zip(window, dilation, padding, strict=True)
    ]
    if transposed:  # the padding must leave something of the result
        padding = [
            min(p, (d * (w - 1)) // 2) for w, d, p in zip(window, dilation, padding, strict=True)
        ]
    input_ = draw(strided((draw(st.integers(1, 2)), inner, *size)))
    weight_shape = (inner, outer // groups) if transposed else (outer, inner // groups)
    return {
        "input": input_,
        "weight": draw(strided((*weight_shape, *window))),
        "bias": draw(strided((outer,))) if draw(st.booleans()) else None,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "transposed": transposed,
        "output_padding": extra,
        "groups": groups,
    }


@given(convolutions())
@small
def test_convolution_equals_eager(abi: Any, case: dict[str, Any]) -> None:
    """Whatever the shapes, strides, offsets, groups, dilation and padding, values are eager's."""
    expected = torch.ops.aten.convolution.default(*case.values())
    actual = abi.result("aoti_torch_cpu_convolution", **case)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("input_last", [False, True])
@pytest.mark.parametrize("weight_last", [False, True])
@pytest.mark.parametrize("channels", [1, 5])
def test_output_layout_is_the_one_the_compiler_counts_on(
    abi: Any, input_last: bool, weight_last: bool, channels: int
) -> None:
    """A channels-last operand makes the output channels-last, exactly as torch's own kernel does."""
    x = torch.randn(2, channels, 6, 7)
    w = torch.randn(4, channels, 3, 3)
    x = x.to(memory_format=torch.channels_last) if input_last else x
    w = w.to(memory_format=torch.channels_last) if weight_last else w
    expected = torch.mkldnn_convolution(x, w, None, [0, 0], [1, 1], [1, 1], 1)
    output = abi.call(
        "aoti_torch_cpu_convolution",
        input=x, weight=w, bias=None, stride=[1, 1], padding=[0, 0], dilation=[1, 1],
        transposed=False, output_padding=[0, 0], groups=1,
    )[0]  # fmt: skip
    assert abi.geometry(output)[1] == expected.stride()


def test_empty_batch_gives_an_empty_result(abi: Any) -> None:
    """A convolution over no image has the right shape and no values."""
    x, w, b = torch.randn(0, 4, 5, 5), torch.randn(3, 4, 1, 1), torch.randn(3)
    expected = F.conv2d(x, w, b)
    actual = abi.result(
        "aoti_torch_cpu_convolution",
        input=x, weight=w, bias=b, stride=[1, 1], padding=[0, 0], dilation=[1, 1],
        transposed=False, output_padding=[0, 0], groups=1,
    )  # fmt: skip
    torch.testing.assert_close(actual, expected)


ACTIVATIONS: list[tuple[str, list[float], str, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("none", [], "", lambda x: x),
    ("relu", [], "", torch.relu),
    ("hardtanh", [0.0, 6.0], "", F.relu6),
    ("gelu", [], "none", F.gelu),
    ("gelu", [], "tanh", lambda x: F.gelu(x, approximate="tanh")),
    ("swish", [], "", F.silu),
    ("sigmoid", [], "", torch.sigmoid),
    ("tanh", [], "", torch.tanh),
    ("hardswish", [], "", F.hardswish),
    ("hardsigmoid", [], "", F.hardsigmoid),
]


@pytest.mark.parametrize(("name", "scalars", "algorithm", "function"), ACTIVATIONS)
def test_fused_activation_equals_eager(
    abi: Any, name: str, scalars: list[float], algorithm: str, function: Any
) -> None:
    """Each activation that torch's fusions name is applied to convolution plus bias."""
    x, w, b = 3 * torch.randn(2, 8, 9, 9), torch.randn(16, 8, 3, 3), torch.randn(16)
    actual = abi.result(
        "aoti_torch_cpu_mkldnn__convolution_pointwise",
        X=x, W=w, B=b, padding=[1, 1], stride=[1, 1], dilation=[1, 1], groups=1,
        attr=name, scalars=scalars, algorithm=algorithm,
    )  # fmt: skip
    expected = function(F.conv2d(x, w, b, padding=1))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"groups": 3}, "do not fit with 3 groups"),
    ({"groups": 0}, "groups must be at least 1, not 0"),
    ({"stride": [0, 1]}, "stride 0 is less than 1"),
    ({"dilation": [9, 9]}, "is larger than input"),
    ({"bias": torch.randn(5)}, "the bias must have 6 elements"),
    ({"weight": torch.randn(6, 4, 3)}, "do not fit"),
    ({"weight": torch.randn(6, 4, 3, 3, dtype=torch.float64)}, "differ in dtype"),
]


@pytest.mark.parametrize(("change", "fact"), FAULTS)
def test_what_does_not_fit_is_refused_by_name(
    abi: Any, shim_error: type[Exception], change: dict[str, Any], fact: str
) -> None:
    """What does not fit together is an error that names the function and the fact."""
    case = {
        "input": torch.randn(1, 4, 8, 8), "weight": torch.randn(6, 4, 3, 3), "bias": None,
        "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False,
        "output_padding": [0, 0], "groups": 1,
    }  # fmt: skip
    with pytest.raises(shim_error) as caught:
        abi.call("aoti_torch_cpu_convolution", **(case | change))
    assert str(caught.value).startswith("aoti_torch_cpu_convolution: ")
    assert fact in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_or_refused(
    abi: Any, shim_error: type[Exception], dtype: torch.dtype
) -> None:
    """Half precision gives eager's values where the kernel library can, and else a message."""
    x, w = torch.randn(1, 8, 6, 6).to(dtype), torch.randn(8, 8, 3, 3).to(dtype)
    case = {
        "input": x, "weight": w, "bias": None, "stride": [1, 1], "padding": [1, 1],
        "dilation": [1, 1], "transposed": False, "output_padding": [0, 0], "groups": 1,
    }  # fmt: skip
    try:
        actual = abi.result("aoti_torch_cpu_convolution", **case)
    except shim_error as error:
        assert str(error).startswith("aoti_torch_cpu_convolution: ")  # noqa: PT017 - either is fine
        return
    expected = F.conv2d(x.float(), w.float(), padding=1)
    torch.testing.assert_close(actual.float(), expected, rtol=0.05, atol=0.1)
