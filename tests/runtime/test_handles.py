"""Tensor handles: views, offsets, copies, and what is refused."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.bool, torch.bfloat16,
]  # fmt: skip


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of up to four axes: permuted, stepped, shifted, perhaps expanded or empty."""
    sizes = draw(st.lists(st.integers(0, 5), max_size=4))
    steps = [draw(st.integers(1, 2)) for _ in sizes]
    whole = torch.arange(
        1
        + sum(1 for _ in sizes)
        + torch.Size([n * s + 1 for n, s in zip(sizes, steps, strict=True)]).numel(),
        dtype=torch.float32,
    )
    shape = [n * s + 1 for n, s in zip(sizes, steps, strict=True)]
    value = whole[1 : 1 + torch.Size(shape).numel()].reshape(shape)
    for axis, (size, step) in enumerate(zip(sizes, steps, strict=True)):
        value = value.narrow(axis, 1, size * step)
        value = value[(slice(None),) * axis + (slice(None, None, step),)]
    value = value.permute(draw(st.permutations(range(len(sizes)))))
    return value.expand(3, *value.shape) if draw(st.booleans()) else value


@given(views())
@settings(max_examples=80, deadline=None)
def test_queries_answer_as_torch_does(abi: Any, value: torch.Tensor) -> None:
    """Sizes, strides and values of a handle are those of the tensor behind it."""
    handle = abi.place(value)
    assert abi.geometry(handle) == (tuple(value.shape), value.stride())
    assert torch.equal(abi.value(handle), value)


@given(views())
@settings(max_examples=80, deadline=None)
def test_clone_keeps_values_and_order_of_axes(abi: Any, value: torch.Tensor) -> None:
    """A clone has torch's strides: the same if dense, else dense in the same order."""
    clone = abi.call("aoti_torch_clone", self=value)[0]
    assert torch.equal(abi.value(clone), value)
    if value.numel() > 0:
        assert abi.geometry(clone)[1] == value.clone().stride()


@given(views(), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
@settings(max_examples=80, deadline=None)
def test_copy_converts_as_torch_does(
    abi: Any, value: torch.Tensor, source: torch.dtype, target: torch.dtype
) -> None:
    """copy_ between any strides and dtypes gives torch's values."""
    given_ = (value % 100).to(source)
    into = torch.zeros(value.shape).to(target).transpose(0, -1) if value.dim() else torch.zeros(())
    into = into.to(target)
    if into.shape != value.shape:
        into = torch.zeros(value.shape, dtype=target)
    expected = torch.zeros(value.shape, dtype=target).copy_(given_)
    abi.call("aoti_torch_copy_", self=into, src=given_, non_blocking=0)
    assert torch.equal(into, expected)


def test_copy_broadcasts(abi: Any) -> None:
    """copy_ spreads one-sized and missing axes."""
    into = torch.zeros(2, 3, 4)
    abi.call("aoti_torch_copy_", self=into, src=torch.arange(3.0)[:, None], non_blocking=0)
    assert torch.equal(into, torch.arange(3.0)[:, None].expand(2, 3, 4))


def test_overlapping_copy_is_refused(abi: Any, shim_error: type[Exception]) -> None:
    """A copy whose source is written while it is read is not attempted."""
    base = torch.arange(10.0)
    with pytest.raises(shim_error, match=r"^aoti_torch_copy_: source and target of a copy overlap"):
        abi.call("aoti_torch_copy_", self=base[1:9], src=base[:8], non_blocking=0)


@pytest.mark.parametrize(("begin", "overlaps"), [(0, True), (3, True), (7, True), (8, False)])
def test_overlap_is_of_bytes(
    abi: Any, shim_error: type[Exception], begin: int, overlaps: bool
) -> None:
    """Four wide elements and four narrow ones overlap where their bytes do."""
    memory = torch.arange(12, dtype=torch.int32)
    wide, narrow = memory[:8].view(torch.int64), memory[begin : begin + 4]
    call = {"self": wide, "src": narrow, "non_blocking": 0}
    if overlaps:
        with pytest.raises(shim_error, match="overlap"):
            abi.call("aoti_torch_copy_", **call)
    else:
        abi.call("aoti_torch_copy_", **call)
        assert wide.tolist() == [8, 9, 10, 11]


def test_view_outlives_its_base(abi: Any) -> None:
    """A view shares the storage, so deleting the handle it was taken from does not harm it."""
    base = abi.call("aoti_torch_clone", self=torch.arange(24.0).reshape(4, 6))[0]
    view = abi.call(
        "aoti_torch__reinterpret_tensor", self=base, ndim=2, sizes_ptr=[2, 3], strides_ptr=[6, 2],
        storage_offset=7,
    )[0]  # fmt: skip
    del base
    assert torch.equal(abi.value(view), torch.arange(24.0).as_strided((2, 3), (6, 2), 7))


def test_writes_through_a_view_are_seen_by_the_base(abi: Any) -> None:
    """Views alias: there is no copy between them."""
    base = torch.zeros(6)
    view = abi.call(
        "aoti_torch__reinterpret_tensor", self=base, ndim=1, sizes_ptr=[2], strides_ptr=[3],
        storage_offset=1,
    )[0]  # fmt: skip
    abi.call("aoti_torch_copy_", self=view, src=torch.tensor([5.0, 7.0]), non_blocking=0)
    assert torch.equal(base, torch.tensor([0.0, 5.0, 0.0, 0.0, 7.0, 0.0]))


def test_pool_view_has_its_own_dtype(abi: Any) -> None:
    """A view into a pool is at a byte offset and reads other elements."""
    pool = torch.arange(8, dtype=torch.int32)
    view = abi.call(
        "aoti_torch__alloc_from_pool", self=pool, offset_bytes=8, dtype=4, ndim=1, sizes_ptr=[2],
        strides_ptr=[1],
    )[0]  # fmt: skip
    assert torch.equal(abi.value(view), pool[2:6].view(torch.int64))


VIEW_FAULTS = [
    ([4], [1], 3, "ends at byte"),
    ([2, 2], [3, 2], 1, "ends at byte"),
    ([-1], [1], 0, "size -1 of axis 0 is negative"),
    ([2], [-1], 0, "stride -1 of axis 0 is negative"),
    ([2], [1], -1, "storage offset -1 is negative"),
    ([2**62, 4], [4, 1], 0, "sizes overflow"),
    ([2**32, 2**32], [0, 0], 0, "sizes overflow"),
    ([1] * 17, [1] * 17, 0, "17 axes exceed the limit of 16"),
]


@pytest.mark.parametrize(("sizes", "strides", "offset", "fact"), VIEW_FAULTS)
def test_view_outside_its_storage_is_refused(
    abi: Any,
    shim_error: type[Exception],
    sizes: list[int],
    strides: list[int],
    offset: int,
    fact: str,
) -> None:
    """No view is made any element of which would be outside the storage."""
    with pytest.raises(shim_error, match=f"^aoti_torch__reinterpret_tensor: .*{fact}"):
        abi.call(
            "aoti_torch__reinterpret_tensor", self=torch.zeros(6), ndim=len(sizes),
            sizes_ptr=sizes, strides_ptr=strides, storage_offset=offset,
        )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_empty_strided_is_aligned_and_writable(abi: Any, dtype: torch.dtype) -> None:
    """Fresh memory starts at a multiple of 64 bytes and has the asked-for strides."""
    number = abi.dtype_number(dtype)
    handle = abi.call(
        "aoti_torch_empty_strided", ndim=2, sizes_ptr=[3, 5], strides_ptr=[1, 3], dtype=number,
        device_type=0, device_index=0,
    )[0]  # fmt: skip
    address = ctypes.c_void_p()
    abi.lib.aoti_torch_get_data_ptr(handle.pointer, ctypes.byref(address))
    assert (address.value or 0) % 64 == 0
    assert abi.geometry(handle) == ((3, 5), (1, 3))
    abi.call("aoti_torch_zero_", self=handle)
    assert torch.equal(abi.value(handle), torch.zeros(3, 5).to(dtype))


def test_other_device_is_refused(abi: Any, shim_error: type[Exception]) -> None:
    """There is no memory of another device here."""
    with pytest.raises(shim_error, match="device type 1 is not the CPU"):
        abi.call(
            "aoti_torch_empty_strided", ndim=1, sizes_ptr=[1], strides_ptr=[1], dtype=6,
            device_type=1, device_index=0,
        )  # fmt: skip


def test_unknown_dtype_is_refused(abi: Any, shim_error: type[Exception]) -> None:
    """A dtype number that is not supported is named."""
    with pytest.raises(shim_error, match="dtype number 9 is not supported"):
        abi.call(
            "aoti_torch_empty_strided", ndim=1, sizes_ptr=[1], strides_ptr=[1], dtype=9,
            device_type=0, device_index=0,
        )  # fmt: skip


def test_null_handle_is_refused(abi: Any) -> None:
    """A null handle is an error, not a crash."""
    out = ctypes.c_int64()
    assert abi.lib.aoti_torch_get_dim(None, ctypes.byref(out)) != 0


def test_undefined_tensor_is_refused(abi: Any, shim_error: type[Exception]) -> None:
    """A handle without a tensor answers nothing."""
    nothing = abi.call("aoti_torch_new_uninitialized_tensor")[0]
    with pytest.raises(shim_error, match="a tensor handle is undefined"):
        abi.geometry(nothing)


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [
        ("float32", 1.5, ctypes.c_float),
        ("int64", -(2**40), ctypes.c_int64),
        ("bool", True, ctypes.c_bool),
    ],
)
def test_scalar_makes_the_round_trip(abi: Any, name: str, value: Any, dtype: Any) -> None:
    """A number becomes a tensor without axes and comes back."""
    handle = ctypes.c_void_p()
    getattr(abi.lib, f"aoti_torch_scalar_to_tensor_{name}")(dtype(value), ctypes.byref(handle))
    back = dtype()
    assert getattr(abi.lib, f"aoti_torch_item_{name}")(handle, ctypes.byref(back)) == 0
    assert back.value == value
    abi.lib.aoti_torch_delete_tensor_object(handle)


def test_item_of_another_dtype_is_refused(abi: Any, shim_error: type[Exception]) -> None:
    """Bits are not read as what they are not."""
    handle = abi.place(torch.ones(1, dtype=torch.int64))
    value = ctypes.c_float()
    assert abi.lib.aoti_torch_item_float32(handle.pointer, ctypes.byref(value)) != 0
