"""Tensors on the device: views without copies, copies of every kind, memory of others."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shim_device import DTYPE_NUMBERS, Device, Handle, ShimError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICE = 13  # c10::DeviceType::MPS
# Metal has no float64.
DTYPES = [dtype for dtype in DTYPE_NUMBERS if dtype is not torch.float64]


def unary(device: Device, name: str, handle: Handle) -> Handle:
    """A shim that makes one tensor of another."""
    pointer = ctypes.c_void_p()
    device.raw(f"aoti_torch_{name}", handle.pointer, ctypes.byref(pointer))
    return Handle(device.lib, pointer)


def copy(device: Device, source: Handle, target: Handle) -> None:
    """target.copy_(source)."""
    device.raw("aoti_torch_copy_", target.pointer, source.pointer, 0)


def numbers(*sizes: int, dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers that every dtype holds."""
    return torch.arange(torch.Size(sizes).numel()).remainder(100).view(sizes).to(dtype)


def test_new_tensor_is_on_the_device(device: Device) -> None:
    """Device type, geometry and a storage of just its size."""
    handle = device.empty((2, 3), (5, 1), torch.float16)
    assert device.ask("device_type", handle, ctypes.c_int32()) == DEVICE
    assert device.geometry(handle) == ((2, 3), (5, 1))
    assert device.ask("storage_size", handle, ctypes.c_int64()) == (5 + 3) * 2


def test_host_tensors_stay_on_the_host(device: Device) -> None:
    """A tensor of device type CPU and a scalar made here are in the host's memory."""
    assert device.ask("device_type", device.blob(torch.ones(2)), ctypes.c_int32()) == 0
    pointer = ctypes.c_void_p()
    device.raw("aoti_torch_scalar_to_tensor_float32", ctypes.c_float(1.5), ctypes.byref(pointer))
    scalar = Handle(device.lib, pointer)
    assert device.ask("device_type", scalar, ctypes.c_int32()) == 0
    assert device.value(scalar).item() == 1.5


@pytest.mark.parametrize("number", [1, -1, 20])
def test_other_devices_are_refused(device: Device, number: int) -> None:
    """A tensor for a device that this runtime does not have is refused."""
    pointer = ctypes.c_void_p()
    one = (ctypes.c_int64 * 1)(1)
    with pytest.raises(ShimError, match=f"device type {number} is neither Metal nor the CPU"):
        device.raw(
            "aoti_torch_empty_strided",
            ctypes.c_int64(1), one, one, 6, number, 0, ctypes.byref(pointer),
        )  # fmt: skip


def test_view_shares_its_storage(device: Device) -> None:
    """What is written through a view is read through its base, and the other way round."""
    base = device.place(torch.zeros(4, 6))
    view = device.view(base, (2, 3), (6, 2), 7)
    copy(device, device.place(torch.ones(2, 3)), view)
    expected = torch.zeros(4, 6)
    expected.as_strided((2, 3), (6, 2), 7).fill_(1)
    torch.testing.assert_close(device.value(base), expected)
    assert device.ask("storage_offset", view, ctypes.c_int64()) == 7
    copy(device, device.place(torch.full((4, 6), 2.0)), base)
    torch.testing.assert_close(device.value(view), torch.full((2, 3), 2.0))


def test_view_outlives_its_base(device: Device) -> None:
    """The storage lives as long as the last handle, and a second handle is one more."""
    base = device.place(torch.arange(4.0))
    second = unary(device, "new_tensor_handle", base)
    view = device.view(base, (2,), (1,), 2)
    del base
    device.place(torch.zeros(4))  # would take the memory if it were free
    torch.testing.assert_close(device.value(view), torch.tensor([2.0, 3.0]))
    del view
    torch.testing.assert_close(device.value(second), torch.arange(4.0))


def test_view_beyond_its_storage_is_refused(device: Device) -> None:
    """No view reaches past the end of its buffer."""
    with pytest.raises(ShimError, match="ends at byte 44 of a storage of 40"):
        device.view(device.place(torch.zeros(10)), (2,), (1,), 9)


@pytest.mark.parametrize("target", DTYPES, ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_copies_convert(device: Device, source: torch.dtype, target: torch.dtype) -> None:
    """Between dtypes, on the device and from the host, values are what torch makes of them."""
    values = numbers(3, 4, dtype=source)
    for handle in (device.place(values), device.blob(values)):
        out = device.empty((3, 4), (1, 3), target)
        copy(device, handle, out)
        torch.testing.assert_close(device.value(out), values.to(target), check_stride=False)


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_rounded_to_even(device: Device, target: torch.dtype) -> None:
    """Converting to a shorter float rounds as torch does; NaN and infinity stay."""
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 1 + 2**-8, 1 + 3 * 2**-8])
    values = torch.cat((special, torch.randn(64, generator=torch.Generator().manual_seed(3))))
    out = device.empty((70,), (1,), target)
    copy(device, device.place(values), out)
    torch.testing.assert_close(device.value(out), values.to(target), rtol=0, atol=0, equal_nan=True)


def test_large_whole_numbers_stay_exact(device: Device) -> None:
    """A conversion between integers does not pass through a float."""
    values = torch.tensor([2**62 + 1, -(2**53) - 1, 2**31 - 1])
    out = device.empty((3,), (1,), torch.int32)
    copy(device, device.place(values), out)
    torch.testing.assert_close(device.value(out), values.to(torch.int32))
    wide = device.empty((3,), (2,), torch.int64)
    copy(device, device.place(values), wide)
    torch.testing.assert_close(device.value(wide), values, check_stride=False)


def test_float64_is_copied_but_not_converted(device: Device) -> None:
    """Metal computes no float64, so converting one on the device is refused."""
    values = torch.arange(6.0, dtype=torch.float64).view(2, 3)
    out = device.empty((2, 3), (1, 2), torch.float64)
    copy(device, device.place(values), out)
    torch.testing.assert_close(device.value(out), values, check_stride=False)
    with pytest.raises(ShimError, match="Metal has no float64"):
        copy(device, out, device.empty((2, 3), (3, 1), torch.float32))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Sizes, strides of some order with gaps, and an offset."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=0, max_size=5))
    strides, running = [0] * len(sizes), 1
    for axis in draw(st.permutations(range(len(sizes)))):
        strides[axis] = running * draw(st.integers(1, 2))
        running = strides[axis] * sizes[axis]
    return sizes, strides, draw(st.integers(0, 3))


def strided(sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """Such a tensor, counting."""
    length = offset + 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    return torch.arange(float(length)).as_strided(sizes, strides, offset)


@given(source=layouts(), data=st.data())
@settings(max_examples=40)
def test_copies_honour_all_strides(
    device: Device, source: tuple[list[int], list[int], int], data: st.DataObject
) -> None:
    """From any layout to any other; between the target's elements nothing changes."""
    value = strided(*source)
    sizes, strides, offset = data.draw(
        layouts().filter(lambda found: len(found[0]) == len(source[0]))
    )
    sizes = source[0]
    running = 1
    for axis in sorted(range(len(sizes)), key=lambda a: strides[a]):
        strides[axis] = max(strides[axis], running)
        running = strides[axis] * sizes[axis]
    target = strided(sizes, strides, offset).neg()
    placed = device.place(target)
    copy(device, device.place(value), placed)
    length = target.untyped_storage().nbytes() // 4
    whole = device.value(device.view(placed, (length,), (1,), 0))
    target.copy_(value)
    torch.testing.assert_close(whole, target.as_strided((length,), (1,), 0))


@pytest.mark.parametrize("sizes", [(3, 1), (1, 4), (4,), (), (1,)], ids=str)
def test_copies_broadcast(device: Device, sizes: tuple[int, ...]) -> None:
    """A smaller source is repeated as torch's copy_ repeats it."""
    value, target = numbers(*sizes, dtype=torch.float32), torch.zeros(3, 4)
    placed = device.place(target)
    copy(device, device.place(value), placed)
    torch.testing.assert_close(device.value(placed), target.copy_(value))


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [((2, 3, 4), (12, 1, 3)), ((3, 4), (8, 2)), ((2, 3), (0, 1)), ((0, 3), (3, 1)), ((), ())],
    ids=str,
)
def test_clones(device: Device, sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """A clone keeps the order of axes as torch's does; the other keeps the very strides."""
    length = 30
    value = torch.arange(float(length)).as_strided(sizes, strides, 3)
    placed = device.place(value)
    clone = unary(device, "clone", placed)
    torch.testing.assert_close(device.value(clone), value.clone())
    assert device.geometry(clone)[1] == value.clone().stride()
    same = unary(device, "clone_preserve_strides", placed)
    torch.testing.assert_close(device.value(same), value)
    assert device.geometry(same)[1] == strides
    device.raw("aoti_torch_zero_", clone.pointer)
    torch.testing.assert_close(device.value(placed), value)  # nothing is shared


def test_zero_leaves_neighbours_alone(device: Device) -> None:
    """Zeroing a view with gaps zeroes its elements only."""
    base = device.place(torch.ones(4, 6))
    view = device.view(base, (2, 3), (6, 2), 7)
    device.raw("aoti_torch_zero_", view.pointer)
    expected = torch.ones(4, 6)
    expected.as_strided((2, 3), (6, 2), 7).zero_()
    torch.testing.assert_close(device.value(base), expected)
    device.raw("aoti_torch_zero_", base.pointer)
    torch.testing.assert_close(device.value(base), torch.zeros(4, 6))


def test_item_waits_for_what_computes_it(device: Device) -> None:
    """A number is read after the work before it, without a call to wait."""
    out = device.empty((1, 1), (1, 1), torch.float32)
    row = torch.arange(3.0).view(1, 3)
    device.operate("mm_out", {"out": out, "self": row, "mat2": row.t()})
    number = ctypes.c_float()
    device.raw("aoti_torch_item_float32", out.pointer, ctypes.byref(number))
    assert number.value == 5.0


def test_memory_of_a_container(device: Device) -> None:
    """Memory that generated code manages is written, copied, viewed in place, and given back."""
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    for pointer in (first, second):
        device.raw("aoti_torch_mps_malloc", ctypes.byref(pointer), ctypes.c_size_t(32))
    values = torch.arange(8.0)
    source = ctypes.cast(ctypes.c_void_p(values.data_ptr()), ctypes.POINTER(ctypes.c_uint8))
    device.raw(
        "aoti_torch_mps_memcpy",
        first, ctypes.c_size_t(8), ctypes.c_size_t(4), ctypes.c_size_t(16), source,
    )  # fmt: skip
    device.raw(
        "aoti_torch_mps_copy_buffer",
        first, second, ctypes.c_size_t(16), ctypes.c_size_t(8), ctypes.c_size_t(0),
    )  # fmt: skip
    lists = [(ctypes.c_int64 * 1)(n) for n in (4, 1)]
    pointer = ctypes.c_void_p()
    device.raw(
        "aoti_torch_create_tensor_from_blob",
        second, ctypes.c_int64(1), *lists, ctypes.c_int64(0), 6, DEVICE, 0, ctypes.byref(pointer),
    )  # fmt: skip
    view = Handle(device.lib, pointer)
    torch.testing.assert_close(device.value(view), torch.arange(1.0, 5.0))
    with pytest.raises(ShimError, match="16 bytes at 24 pass the end of 32"):
        device.raw(
            "aoti_torch_mps_copy_buffer",
            first, second, ctypes.c_size_t(16), ctypes.c_size_t(24), ctypes.c_size_t(0),
        )  # fmt: skip
    device.raw("aoti_torch_mps_free", first)
    with pytest.raises(ShimError, match="not from aoti_torch_mps_malloc"):
        device.raw("aoti_torch_mps_free", first)
    device.raw("aoti_torch_mps_free", second)
    torch.testing.assert_close(device.value(view), torch.arange(1.0, 5.0))  # it keeps the memory


def test_memory_of_others_is_lent_to_the_device(device: Device) -> None:
    """A tensor over host memory can be an operand on the device."""
    value = torch.arange(6.0).view(2, 3)
    out = device.empty((2, 2), (2, 1), torch.float32)
    lent = device.blob(value, DEVICE)
    assert device.ask("device_type", lent, ctypes.c_int32()) == DEVICE
    device.operate("mm_out", {"out": out, "self": lent, "mat2": value.t()})
    torch.testing.assert_close(device.value(out), value @ value.t())
