"""What is not an operator: each story calls some shims in turn, and checks what they say."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from shim_device import DTYPE_NUMBERS, Device, Handle, ShimError, shims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Story = Callable[[Device], None]

STORIES: list[tuple[Story, frozenset[str]]] = []
_PREFIX = "aoti_torch_"
_SCALARS: dict[torch.dtype, Any] = {
    torch.float32: ctypes.c_float,
    torch.float64: ctypes.c_double,
    torch.uint8: ctypes.c_uint8,
    torch.int8: ctypes.c_int8,
    torch.int16: ctypes.c_int16,
    torch.int32: ctypes.c_int32,
    torch.int64: ctypes.c_int64,
    torch.bool: ctypes.c_bool,
}
_SHADER = """
#include <metal_stdlib>
using namespace metal;
kernel void scale(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
                  constant long& factor [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = in[i] * factor;
}
"""


def covers(*names: str) -> Callable[[Story], Story]:
    """Adds a story about these shims, named without `aoti_torch_`."""

    def add(story: Story) -> Story:
        STORIES.append((story, frozenset(_PREFIX + name for name in names)))
        return story

    return add


def _numbers(*groups: str) -> Iterable[str]:
    starts = tuple(f"{_PREFIX}{group}_" for group in groups)
    return (name.removeprefix(_PREFIX) for name in shims() if name.startswith(starts))


@covers(*_numbers("device_type", "dtype", "layout", "memory_format"))
def numbers(device: Device) -> None:
    """Device types, dtypes, layouts and memory formats have the numbers that torch gives them."""
    theirs = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    for name in _numbers("device_type", "dtype", "layout", "memory_format"):
        arguments = [6] if name == "dtype_element_size" else []
        expected = getattr(theirs, _PREFIX + name)(*arguments)
        assert device.answer(_PREFIX + name, *arguments) == expected, name


@covers("grad_mode_is_enabled", "grad_mode_set_enabled", "check", "warn")
def modes(device: Device) -> None:
    """Nothing is differentiated; a check that holds and a warning do nothing."""
    device.answer("aoti_torch_grad_mode_set_enabled", 1)
    assert device.answer("aoti_torch_grad_mode_is_enabled") & 1 == 0
    device.answer("aoti_torch_check", 1, b"f", b"f.cpp", 1, b"holds")
    device.answer("aoti_torch_warn", b"f", b"f.cpp", 1, b"mind")


@covers("proxy_executor_call_function")
def proxy(device: Device) -> None:
    """There is no dispatcher behind this runtime."""
    name = "aoti_torch_proxy_executor_call_function"
    _fails(device, name, None, 3, 0, None, 0, None, fact="operator number 3 needs PyTorch")


@covers("empty_strided", "create_tensor_from_blob", "_reinterpret_tensor", "copy_", "get_data_ptr",
       "get_dim", "get_sizes", "get_strides", "get_dtype")  # fmt: skip
def placing(device: Device) -> None:
    """A tensor comes back from the device with its values, strides and dtype."""
    for dtype in DTYPE_NUMBERS:
        value = torch.arange(24).reshape(4, 6).to(dtype)[1:, ::2].T
        handle = device.place(value)
        assert device.geometry(handle) == ((3, 3), (2, 6))
        assert torch.equal(device.value(handle), value)


@covers("create_tensor_from_blob_v2")
def lending(device: Device) -> None:
    """The caller's memory is used in place; other layouts than strided are refused."""
    value = torch.arange(6.0)
    data = ctypes.c_void_p(value.data_ptr())
    one = ctypes.c_int64 * 1
    pointer = ctypes.c_void_p()
    start = (data, ctypes.c_int64(1), one(6), one(1), ctypes.c_int64(0), 6, 0, 0)
    name = "aoti_torch_create_tensor_from_blob_v2"
    device.raw(name, *start, ctypes.byref(pointer), 0, None, ctypes.c_int64(0))
    assert torch.equal(device.value(Handle(device.lib, pointer, value)), value)
    refused = (*start, ctypes.byref(ctypes.c_void_p()), 1, None, ctypes.c_int64(0))
    _fails(device, name, *refused, fact="layout 1")


@covers("get_storage_size", "get_numel", "get_storage_offset", "get_device_type")
def asking(device: Device) -> None:
    """A view answers for itself and for the storage that it shares."""
    view = device.view(device.place(torch.zeros(10)), (2, 2), (4, 1), 3)
    answers = {"storage_size": 40, "numel": 4, "storage_offset": 3}
    for what, expected in answers.items():
        assert device.ask(what, view, ctypes.c_int64()) == expected
    assert device.ask("device_type", view, ctypes.c_int32()) == device.kind.number


@covers("get_size", "get_stride")
def axes(device: Device) -> None:
    """Axes count from either end, and no further."""
    handle = device.place(torch.zeros(2, 3))
    for what, answers in {"size": (2, 3), "stride": (3, 1)}.items():
        for axis in (0, 1, -1, -2):
            into = ctypes.c_int64()
            name = f"aoti_torch_get_{what}"
            device.raw(name, handle.pointer, ctypes.c_int64(axis), ctypes.byref(into))
            assert into.value == answers[axis]
        _fails(device, name, handle.pointer, ctypes.c_int64(2), None, fact="axis 2 is not in")


@covers("new_uninitialized_tensor", "assign_tensors_out", "new_tensor_handle",
       "delete_tensor_object")  # fmt: skip
def handles(device: Device) -> None:
    """Second handles share the storage and outlive the first."""
    first = device.place(torch.arange(3.0))
    second = device.made("aoti_torch_new_tensor_handle", first.pointer)
    third = device.made("aoti_torch_assign_tensors_out", first.pointer)
    device.raw("aoti_torch_zero_", second.pointer)
    device.raw("aoti_torch_delete_tensor_object", first.pointer)
    first.pointer = ctypes.c_void_p()
    for handle in (second, third):
        assert torch.equal(device.value(handle), torch.zeros(3))
    nothing = device.undefined()
    _fails(device, "aoti_torch_get_dim", nothing.pointer, None, fact="a tensor handle is undefined")


@covers("as_strided", "_alloc_from_pool")
def views(device: Device) -> None:
    """Views see each other's writes; none reaches beyond the storage."""
    values = torch.arange(12.0)
    pool = device.place(values)
    two = ctypes.c_int64 * 2
    square = device.view(pool, (3, 3), (3, 1), 3)
    turned = device.made("aoti_torch_as_strided", square.pointer, two(3, 3), two(1, 3))
    assert torch.equal(device.value(turned), values[3:].reshape(3, 3).T)
    tail = ctypes.c_int64(16), 6, ctypes.c_int64(2), two(2, 4), two(4, 1)
    part = device.made("aoti_torch__alloc_from_pool", pool.pointer, *tail)
    device.raw("aoti_torch_zero_", part.pointer)
    assert torch.equal(device.value(turned)[:, 0], torch.tensor([3.0, 0.0, 0.0]))
    _fails(device, "aoti_torch_as_strided", square.pointer, two(3, 3), two(9, 3), None,
           fact="ends at byte")  # fmt: skip


@covers("clone", "clone_preserve_strides", "copy_", "zero_")
def copies(device: Device) -> None:
    """Copies keep values and strides, convert dtypes and broadcast."""
    value = torch.arange(24.0).reshape(4, 6)[1:, ::2].T
    handle = device.place(value)
    for name, strides in {"clone": (1, 3), "clone_preserve_strides": value.stride()}.items():
        copy = device.made(f"aoti_torch_{name}", handle.pointer)
        assert torch.equal(device.value(copy), value)
        assert device.geometry(copy)[1] == strides
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
        target = device.place(torch.zeros(5, 3, 3, dtype=dtype))
        device.raw("aoti_torch_copy_", target.pointer, handle.pointer, 0)
        assert torch.equal(device.value(target), value.to(dtype).expand(5, 3, 3))
    _fails(device, "aoti_torch_copy_", handle.pointer, target.pointer, 0, fact="axes")
    device.raw("aoti_torch_zero_", handle.pointer)
    assert torch.equal(device.value(handle), torch.zeros(3, 3))


@covers("index_put_out")
def putting(device: Device) -> None:
    """What lists or masks name is written into a tensor, the very one or another, as eager does."""
    where = torch.tensor([2, -4, 1])
    mask = torch.tensor([[True, False, True, True, False]]).expand(4, 5).clone()
    for dtype in (torch.float32, torch.int64, torch.bool, torch.uint8, torch.float16):
        value = torch.arange(20).reshape(4, 5).to(dtype)
        for indices, values in (
            ([where], torch.ones(3, 5, dtype=dtype)),
            ([None, where], torch.ones(4, 1, dtype=dtype)),
            ([mask], torch.arange(12).to(dtype)),
            ([mask[0, :4], None], torch.ones(5, dtype=dtype)),
        ):
            for accumulate in (False, True):
                expected = torch.ops.aten.index_put(value, indices, values, accumulate)
                for laid in (value, value.T.contiguous().T):
                    into = device.place(laid.clone())
                    _put(device, into, into, indices, values, accumulate)
                    assert torch.equal(device.value(into), expected)
                    other = device.place(torch.zeros(4, 5, dtype=dtype))
                    _put(device, other, device.place(laid), indices, values, accumulate)
                    assert torch.equal(device.value(other), expected)
    name = "aoti_torch_index_put_out"
    into, ones = device.place(torch.zeros(4)), device.place(torch.ones(3))
    no_index = device.place(torch.ones(3))
    wrong = (ctypes.c_void_p * 1)(no_index.pointer.value)
    _fails(device, name, into.pointer, into.pointer, wrong, 1, ones.pointer, False,
           fact="is not an index")  # fmt: skip
    _fails(device, name, into.pointer, None, wrong, 1, ones.pointer, False, fact="handle is null")


def _put(
    device: Device,
    out: Handle,
    into: Handle,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool,
) -> None:
    placed = [None if index is None else device.place(index) for index in indices]
    pointers = [None if handle is None else handle.pointer.value for handle in placed]
    given = (ctypes.c_void_p * len(pointers))(*pointers)
    source = device.place(values)
    device.raw(
        "aoti_torch_index_put_out", out.pointer, into.pointer, given,
        ctypes.c_uint32(len(pointers)), source.pointer, ctypes.c_bool(accumulate),
    )  # fmt: skip


@covers(*(f"{verb}_{str(d).removeprefix('torch.')}" for d in _SCALARS
         for verb in ("item", "scalar_to_tensor")))  # fmt: skip
def scalars(device: Device) -> None:
    """Numbers become tensors without axes, and come back from the device."""
    for dtype, kind in _SCALARS.items():
        name = str(dtype).removeprefix("torch.")
        made = device.made(f"aoti_torch_scalar_to_tensor_{name}", kind(1))
        assert torch.equal(device.value(made), torch.ones((), dtype=dtype))
        into = kind()
        handle = device.place(torch.tensor([[7]]).to(dtype))
        device.raw(f"aoti_torch_item_{name}", handle.pointer, ctypes.byref(into))
        assert into.value == (dtype is torch.bool or 7)
        many = device.place(torch.zeros(2, dtype=dtype))
        _fails(device, f"aoti_torch_item_{name}", many.pointer, ctypes.byref(into), fact="")


@covers("mps_create_shader_library", "mps_get_kernel_function", "mps_run_command_block",
       "mps_start_encoding", "mps_set_arg_tensor", "mps_set_arg_int", "mps_dispatch_single",
       "mps_dispatch_single_with_group_size", "mps_dispatch_array",
       "mps_dispatch_array_with_group_size", "mps_delete_shader_library")  # fmt: skip
def launching(device: Device) -> None:
    """A shader runs over as many threads as each way of dispatching says."""
    library = device.made("aoti_torch_mps_create_shader_library", _SHADER.encode()).disowned()
    function = device.made("aoti_torch_mps_get_kernel_function", library, b"scale").disowned()
    one = ctypes.c_uint64 * 1
    eight, four, single = ctypes.c_uint64(8), ctypes.c_uint64(4), ctypes.c_size_t(1)
    for way, grid in {
        "single": (eight,),
        "single_with_group_size": (eight, four),
        "array": (one(8), single),
        "array_with_group_size": (one(8), single, one(4), single),
    }.items():
        source, target = device.place(torch.arange(8.0)), device.place(torch.zeros(8))

        def encode(
            *_: object, way: str = way, grid: Any = grid, pair: Any = (target, source)
        ) -> None:
            device.raw("aoti_torch_mps_start_encoding", function)
            for index, handle in enumerate(pair):
                device.raw("aoti_torch_mps_set_arg_tensor", function, index, handle.pointer)
            device.raw("aoti_torch_mps_set_arg_int", function, 2, ctypes.c_int64(3))
            device.raw(f"aoti_torch_mps_dispatch_{way}", function, *grid)

        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(encode)
        device.raw("aoti_torch_mps_run_command_block", function, callback, None)
        assert torch.equal(device.value(target), 3 * torch.arange(8.0)), way
    device.raw("aoti_torch_mps_delete_shader_library", library)


@covers("mps_malloc", "mps_memcpy", "mps_copy_buffer", "mps_free")
def buffers(device: Device) -> None:
    """Bytes go into raw buffers and from one to the other."""
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    for buffer in (first, second):
        device.raw("aoti_torch_mps_malloc", ctypes.byref(buffer), ctypes.c_size_t(16))
    numbers_ = (ctypes.c_uint8 * 16)(*range(16))
    part = [ctypes.c_size_t(n) for n in (4, 8, 8)]  # at, from, bytes
    device.raw("aoti_torch_mps_memcpy", first, *part, numbers_)
    beyond = [ctypes.c_size_t(n) for n in (9, 0, 8)]
    _fails(device, "aoti_torch_mps_memcpy", first, *beyond, numbers_, fact="pass the end of 16")
    whole = [ctypes.c_size_t(n) for n in (16, 0, 0)]
    device.raw("aoti_torch_mps_copy_buffer", first, second, *whole)
    for buffer in (first, second):
        device.raw("aoti_torch_mps_free", buffer)


def _fails(device: Device, name: str, *arguments: Any, fact: str) -> None:
    with pytest.raises(ShimError, match=f"^{name}: .*{fact}"):
        device.raw(name, *arguments)
