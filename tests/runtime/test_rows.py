"""Sorting, running sums and pooling against eager PyTorch, over random strides and dtypes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

small = settings(max_examples=50, deadline=None)


@st.composite
def tensors(draw: st.DrawFn, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of up to three axes, permuted and stepped, with repeated values and perhaps NaN."""
    sizes = draw(st.lists(st.integers(0, 6), max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    whole = torch.randint(-3, 4, [2 * n for n in sizes], generator=generator).float()
    if draw(st.booleans()) and whole.numel():
        whole.view(-1)[:: draw(st.integers(2, 5))] = torch.nan
    value = whole[tuple(slice(0, None, 2) for _ in sizes)]
    value = value.permute(draw(st.permutations(range(len(sizes)))))
    chosen = dtype or draw(
        st.sampled_from([torch.float32, torch.int64, torch.float64, torch.bfloat16])
    )
    return value if chosen is torch.float32 else value.nan_to_num().to(chosen)


@given(st.data(), tensors(), st.booleans())
@small
def test_sort_equals_eager(
    abi: Any, data: st.DataObject, x: torch.Tensor, descending: bool
) -> None:
    """Values and indices of a stable sort, NaN last, in eager's layout."""
    axis = data.draw(st.integers(-max(x.dim(), 1), max(x.dim(), 1) - 1))
    expected = torch.sort(x, dim=axis, descending=descending, stable=True)
    values, indices = abi.call(
        "aoti_torch_cpu_sort_stable", self=x, stable=1, dim=axis, descending=descending
    )
    torch.testing.assert_close(abi.value(values), expected.values, equal_nan=True, rtol=0, atol=0)
    assert torch.equal(abi.value(indices), expected.indices)
    if x.numel():
        assert abi.geometry(values)[1] == expected.values.stride()
        assert abi.geometry(indices)[1] == expected.indices.stride()


@given(st.data(), tensors(), st.booleans())
@small
def test_topk_equals_eager(abi: Any, data: st.DataObject, x: torch.Tensor, largest: bool) -> None:
    """The k best values of each row are eager's, and the indices lead to them."""
    axis = data.draw(st.integers(0, max(x.dim(), 1) - 1))
    k = data.draw(st.integers(0, x.shape[axis] if x.dim() else 1))
    expected = torch.topk(x, k, dim=axis, largest=largest)
    values, indices = (
        abi.value(handle)
        for handle in abi.call(
            "aoti_torch_cpu_topk", self=x, k=k, dim=axis, largest=largest, sorted=1
        )
    )
    torch.testing.assert_close(values, expected.values, equal_nan=True, rtol=0, atol=0)
    found = x.gather(axis, indices) if x.dim() else x.expand(())
    torch.testing.assert_close(found, expected.values, equal_nan=True, rtol=0, atol=0)


@given(st.data(), tensors(), st.sampled_from(["cumsum", "cumprod"]))
@small
def test_scan_equals_eager(abi: Any, data: st.DataObject, x: torch.Tensor, name: str) -> None:
    """Running sums and products along any axis, in eager's dtype and layout."""
    axis = data.draw(st.integers(-max(x.dim(), 1), max(x.dim(), 1) - 1))
    expected = getattr(torch, name)(x, axis)
    result = abi.call(f"aoti_torch_cpu_{name}", self=x, dim=axis, dtype=None)[0]
    torch.testing.assert_close(
        abi.value(result),
        expected,
        equal_nan=True,
        rtol=1e-2 if x.dtype is torch.bfloat16 else 1e-5,
        atol=1e-5,
    )
    if x.numel():
        assert abi.geometry(result)[1] == expected.stride()


@pytest.mark.parametrize(("dtype", "number"), [(torch.bool, 4), (torch.int32, 4), (torch.uint8, 6)])
def test_scan_promotes_as_eager_does(abi: Any, dtype: torch.dtype, number: int) -> None:
    """Small integers add up in int64, or in the dtype that is asked for."""
    x = torch.tensor([1, 0, 1, 1]).to(dtype)
    wanted = torch.float32 if number == 6 else None
    expected = torch.cumsum(x, 0, dtype=wanted)
    actual = abi.result("aoti_torch_cpu_cumsum", self=x, dim=0, dtype=number if wanted else None)
    torch.testing.assert_close(actual, expected)


@st.composite
def images(draw: st.DrawFn) -> torch.Tensor:
    """An image or a batch of them, contiguous or channels-last."""
    shape = [
        draw(st.integers(1, 3)),
        draw(st.integers(1, 4)),
        *(draw(st.integers(1, 9)) for _ in "hw"),
    ]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    image = torch.randn(shape, generator=generator)
    kind = draw(st.sampled_from(["plain", "last", "single"]))
    if kind == "last":
        return image.to(memory_format=torch.channels_last)
    return image[0] if kind == "single" else image


@st.composite
def windows(draw: st.DrawFn, size: tuple[int, int]) -> dict[str, Any]:
    """A sliding window that fits an image of that size."""
    window = [draw(st.integers(1, n)) for n in size]
    return {
        "kernel_size": window,
        "stride": [draw(st.integers(1, 3)) for _ in window],
        "padding": [draw(st.integers(0, n // 2)) for n in window],
        "ceil_mode": draw(st.booleans()),
    }


def assert_alike(abi: Any, handle: Any, expected: torch.Tensor) -> None:
    """Equal values in eager's layout."""
    torch.testing.assert_close(abi.value(handle), expected, rtol=1e-5, atol=1e-5)
    assert abi.geometry(handle)[1] == expected.stride()


@given(st.data(), images(), st.booleans(), st.sampled_from([None, 3]))
@small
def test_average_of_windows_equals_eager(
    abi: Any, data: st.DataObject, image: torch.Tensor, padded: bool, divisor: int | None
) -> None:
    """Averages with padding counted or not, with rounding up, or with a divisor of their own."""
    case = data.draw(windows((image.shape[-2], image.shape[-1])))
    expected = F.avg_pool2d(image, **case, count_include_pad=padded, divisor_override=divisor)
    result = abi.call(
        "aoti_torch_cpu_avg_pool2d", self=image, **case, count_include_pad=padded,
        divisor_override=divisor,
    )[0]  # fmt: skip
    assert_alike(abi, result, expected)


@given(st.data(), images(), st.integers(1, 2))
@small
def test_largest_of_windows_equals_eager(
    abi: Any, data: st.DataObject, image: torch.Tensor, dilation: int
) -> None:
    """Largest values and where they stand, dilated windows too."""
    case = data.draw(windows((image.shape[-2], image.shape[-1])))
    if dilation * (max(case["kernel_size"]) - 1) + 1 > min(image.shape[-2:]):
        dilation = 1
    expected = F.max_pool2d_with_indices(image, **case, dilation=dilation)
    results = abi.call(
        "aoti_torch_cpu_max_pool2d_with_indices", self=image, **case, dilation=[dilation]
    )
    assert_alike(abi, results[0], expected[0])
    assert_alike(abi, results[1], expected[1])


@given(images(), st.integers(1, 5), st.integers(1, 5))
@small
def test_adaptive_pooling_equals_eager(abi: Any, image: torch.Tensor, h: int, w: int) -> None:
    """Windows that divide the image into so many parts, averaged and largest."""
    average = abi.call("aoti_torch_cpu__adaptive_avg_pool2d", self=image, output_size=[h, w])[0]
    assert_alike(abi, average, F.adaptive_avg_pool2d(image, (h, w)))
    largest = abi.call("aoti_torch_cpu_adaptive_max_pool2d", self=image, output_size=[h, w])
    expected = F.adaptive_max_pool2d_with_indices(image, (h, w))
    assert_alike(abi, largest[0], expected[0])
    assert_alike(abi, largest[1], expected[1])


def test_largest_lets_nan_win(abi: Any) -> None:
    """A NaN in a window is its largest value."""
    image = torch.tensor([[[1.0, torch.nan], [3.0, 2.0]]])
    expected = F.max_pool2d_with_indices(image, 2)
    values, indices = abi.call(
        "aoti_torch_cpu_max_pool2d_with_indices", self=image, kernel_size=[2, 2], stride=[],
        padding=[0], dilation=[1], ceil_mode=0,
    )  # fmt: skip
    torch.testing.assert_close(abi.value(values), expected[0], equal_nan=True)
    assert torch.equal(abi.value(indices), expected[1])


@pytest.mark.parametrize(
    ("name", "case", "fact"),
    [
        ("topk", {"k": 4, "dim": 0, "largest": 1, "sorted": 1}, "k = 4 is not within axis 0"),
        ("sort", {"dim": 2, "descending": 0}, "axis 2 is not in float32"),
        ("cumsum", {"dim": -3, "dtype": None}, "axis -3 is not in float32"),
        ("_adaptive_avg_pool2d", {"output_size": [1, 1]}, "must have 3 or 4 axes"),
    ],
)
def test_misfit_is_refused_by_name(
    abi: Any, shim_error: type[Exception], name: str, case: dict[str, Any], fact: str
) -> None:
    """What does not fit is an error that names the function and the fact."""
    with pytest.raises(shim_error, match=f"^aoti_torch_cpu_{name}: .*{fact}"):
        abi.call(f"aoti_torch_cpu_{name}", self=torch.zeros(3, 2), **case)
