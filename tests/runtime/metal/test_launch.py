"""Launching shaders as a wrapper does: bindings at byte offsets, order of work, grids, failures."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest
import torch
from shim_device import Device, Handle, ShimError

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void scale(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
                  constant long& factor [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = in[i] * factor;
}

kernel void add_one(device float* values [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  values[i] += 1;
}

// Reads a matrix by the strides that the compiler of the model has counted on.
kernel void gather(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
                   constant long& row [[buffer(2)]], constant long& column [[buffer(3)]],
                   constant long& columns [[buffer(4)]], uint i [[thread_position_in_grid]]) {
  out[i] = in[(i / columns) * row + (i % columns) * column];
}

kernel void shift(device float* out [[buffer(0)]], device const float* in [[buffer(1)]],
                  constant float& by [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = in[i] + by;
}

kernel void groups(device int* out [[buffer(0)]], uint3 at [[thread_position_in_grid]],
                   uint3 size [[dispatch_threads_per_threadgroup]]) {
  if (at.x == 0 && at.y == 0 && at.z == 0) {
    out[0] = size.x;
    out[1] = size.y;
    out[2] = size.z;
  }
}

kernel void count(device atomic_int* out [[buffer(0)]]) {
  atomic_fetch_add_explicit(out, 1, memory_order_relaxed);
}
"""
MOST = 1024  # threads a group on every Apple GPU (Metal feature set tables)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Shaders:
    """A shader library and its functions, as a wrapper holds them."""

    def __init__(self, device: Device, source: str = SOURCE) -> None:
        self.device = device
        self.library = ctypes.c_void_p()
        device.raw(
            "aoti_torch_mps_create_shader_library", source.encode(), ctypes.byref(self.library)
        )

    def function(self, name: str) -> ctypes.c_void_p:
        """A kernel function's handle."""
        function = ctypes.c_void_p()
        self.device.raw(
            "aoti_torch_mps_get_kernel_function",
            self.library, name.encode(), ctypes.byref(function),
        )  # fmt: skip
        return function

    def launch(self, name: str, *arguments: Handle | int, threads: int) -> None:
        """Runs a kernel on so many threads in a row."""
        failures: list[ShimError] = []  # what Python raises in a callback goes nowhere

        def encode(function: int, _: int) -> None:
            try:
                self.bind(ctypes.c_void_p(function), *arguments)
                self.device.raw(
                    "aoti_torch_mps_dispatch_single",
                    ctypes.c_void_p(function), ctypes.c_uint64(threads),
                )  # fmt: skip
            except ShimError as error:
                failures.append(error)

        self.device.raw(
            "aoti_torch_mps_run_command_block", self.function(name), CALLBACK(encode), None
        )
        for failure in failures:
            raise failure

    def bind(self, function: ctypes.c_void_p, *arguments: Handle | int) -> None:
        """Starts an encoding and sets its arguments."""
        self.device.raw("aoti_torch_mps_start_encoding", function)
        for index, value in enumerate(arguments):
            if isinstance(value, Handle):
                kind, given = "tensor", value.pointer
            else:
                kind, given = "int", ctypes.c_int64(value)
            self.device.raw(f"aoti_torch_mps_set_arg_{kind}", function, index, given)

    def close(self) -> None:
        """Gives the library back."""
        self.device.raw("aoti_torch_mps_delete_shader_library", self.library)


@pytest.fixture(scope="module")
def shaders(device: Device) -> Shaders:
    """The kernels above."""
    return Shaders(device)


def test_view_is_bound_at_its_byte_offset(device: Device, shaders: Shaders) -> None:
    """A kernel over a view touches the view's elements of the shared storage and no others."""
    base = device.place(torch.arange(10.0))
    shaders.launch("add_one", device.view(base, (3,), (1,), 4), threads=3)
    expected = torch.arange(10.0)
    expected[4:7] += 1
    torch.testing.assert_close(device.value(base), expected)


def test_writes_through_views_are_read_in_order(device: Device, shaders: Shaders) -> None:
    """Two hundred writes to a storage, each read at once through an offset view: none is stale."""
    base = device.place(torch.zeros(64))
    view = device.view(base, (8,), (1,), 40)
    seen = device.place(torch.zeros(200, 8))
    for i in range(200):
        shaders.launch("add_one", base, threads=64)
        shaders.launch("scale", device.view(seen, (8,), (1,), 8 * i), view, 1, threads=8)
    expected = torch.arange(1.0, 201).unsqueeze(1).expand(200, 8)
    torch.testing.assert_close(device.value(seen), expected)


def test_non_packed_view_stays_where_it_is(device: Device, shaders: Shaders) -> None:
    """A generated kernel indexes a view by the view's own strides, so it must not be packed."""
    matrix = torch.arange(24.0).view(4, 6)
    placed = device.place(matrix[1:, ::2])  # strides (6, 2), offset 6
    out = device.empty((3, 3), (3, 1), torch.float32)
    shaders.launch("gather", out, placed, 6, 2, 3, threads=9)
    torch.testing.assert_close(device.value(out), matrix[1:, ::2])


def test_number_on_the_host_travels_by_value(device: Device, shaders: Shaders) -> None:
    """A tensor of one element that stayed on the host can be an argument, a larger one cannot."""
    values = device.place(torch.arange(4.0))
    out = device.empty((4,), (1,), torch.float32)
    shaders.launch("shift", out, values, device.blob(torch.tensor(0.5)), threads=4)
    torch.testing.assert_close(device.value(out), torch.arange(4.0) + 0.5)
    with pytest.raises(ShimError, match=r"argument 1: float32\[4\] is not on the device"):
        shaders.bind(shaders.function("shift"), out, device.blob(torch.ones(4)))


def test_double_on_the_host_travels_as_a_float(device: Device, shaders: Shaders) -> None:
    """Metal has no float64: a kernel takes a float where the model has a double."""
    values = device.place(torch.arange(4.0))
    out = device.empty((4,), (1,), torch.float32)
    number = device.blob(torch.tensor(0.7, dtype=torch.float64))
    shaders.launch("shift", out, values, number, threads=4)
    torch.testing.assert_close(device.value(out), torch.arange(4.0) + 0.7)


@pytest.mark.parametrize(("length", "group"), [((5,), (5, 1, 1)), ((5000,), (MOST, 1, 1))])
def test_default_group_in_a_row(
    device: Device, shaders: Shaders, length: tuple[int], group: tuple[int, ...]
) -> None:
    """Without a group size a row is cut into the largest groups, no larger than the row."""
    out = device.place(torch.zeros(3, dtype=torch.int32))
    shaders.launch("groups", out, threads=length[0])
    assert tuple(device.value(out).tolist()) == group


def dispatch_array(
    shaders: Shaders, function: ctypes.c_void_p, length: list[int], group: list[int] | None = None
) -> None:
    """Dispatches a grid."""
    lists: list[Any] = [(ctypes.c_uint64 * len(length))(*length), ctypes.c_size_t(len(length))]
    name = "aoti_torch_mps_dispatch_array"
    if group is not None:
        name += "_with_group_size"
        lists += [(ctypes.c_uint64 * len(group))(*group), ctypes.c_size_t(len(group))]
    shaders.device.raw(name, function, *lists)


@pytest.mark.parametrize(
    ("length", "group", "found"),
    [([5000, 2], None, (MOST, 1, 1)), ([5, 3, 2], [4, 2, 1], (4, 2, 1)), ([7], [3], (3, 1, 1))],
)
def test_groups_of_a_grid(
    device: Device,
    shaders: Shaders,
    length: list[int],
    group: list[int] | None,
    found: tuple[int, ...],
) -> None:
    """A grid's groups are as given, else as torch has them; every thread runs once."""
    function = shaders.function("groups")
    out = device.place(torch.zeros(3, dtype=torch.int32))
    shaders.bind(function, out)
    dispatch_array(shaders, function, length, group)
    assert tuple(device.value(out).tolist()) == found
    counter = device.place(torch.zeros(1, dtype=torch.int32))
    shaders.bind(shaders.function("count"), counter)
    dispatch_array(shaders, shaders.function("count"), length, group)
    assert device.value(counter).item() == torch.tensor(length).prod().item()


def test_group_size_in_a_row(device: Device, shaders: Shaders) -> None:
    """A row's groups have the size that is given."""
    function = shaders.function("groups")
    out = device.place(torch.zeros(3, dtype=torch.int32))
    shaders.bind(function, out)
    device.raw(
        "aoti_torch_mps_dispatch_single_with_group_size",
        function, ctypes.c_uint64(100), ctypes.c_uint64(32),
    )  # fmt: skip
    assert device.value(out).tolist() == [32, 1, 1]


def test_empty_grid_does_nothing(device: Device, shaders: Shaders) -> None:
    """An empty tensor's kernel has no threads, and Metal no empty dispatch."""
    out = device.place(torch.ones(2))
    shaders.launch("add_one", out, threads=0)
    torch.testing.assert_close(device.value(out), torch.ones(2))


FAULTS: dict[str, tuple[Callable[[Shaders, ctypes.c_void_p], None], str]] = {
    "group too large": (
        lambda s, f: dispatch_array(s, f, [4], [MOST + 1]),
        f"aoti_torch_mps_dispatch_array_with_group_size: kernel groups: a group of {MOST + 1}",
    ),
    "group of nothing": (lambda s, f: dispatch_array(s, f, [4], [0]), "a group of 0 threads"),
    "four axes": (lambda s, f: dispatch_array(s, f, [1, 1, 1, 1]), "the grid has 4 axes"),
    "no axes": (lambda s, f: dispatch_array(s, f, []), "the grid has 0 axes"),
    "unequal axes": (
        lambda s, f: dispatch_array(s, f, [2, 2], [2]),
        "the grid has 2 axes, its groups 1",
    ),
    "other kernel": (
        lambda s, _: dispatch_array(s, s.function("count"), [1]),
        "the kernel's encoding has not been started",
    ),
    "null function": (
        lambda s, _: dispatch_array(s, ctypes.c_void_p(), [1]),
        "the kernel function's handle is null",
    ),
    "unknown kernel": (lambda s, _: s.launch("absent", threads=1), "absent"),
}


@pytest.mark.parametrize(("fault", "fact"), FAULTS.values(), ids=FAULTS)
def test_impossible_launch_is_refused(
    device: Device, shaders: Shaders, fault: Callable[[Shaders, ctypes.c_void_p], None], fact: str
) -> None:
    """What Metal would abort the process for is an error that says what is wrong."""
    function = shaders.function("groups")
    shaders.bind(function, device.place(torch.zeros(3, dtype=torch.int32)))
    with pytest.raises(ShimError) as caught:
        fault(shaders, function)
    assert fact in str(caught.value)


def test_source_that_does_not_compile_is_refused(device: Device) -> None:
    """The compiler's first error is the message."""
    with pytest.raises(ShimError, match=r"^aoti_torch_mps_create_shader_library: .*nonsense"):
        Shaders(device, "kernel void k(device nonsense* out [[buffer(0)]]) {}")


@pytest.mark.parametrize("source", ["menagerie:kernels.metal:0", "menagerie:"])
def test_bundles_shaders_need_a_running_program(device: Device, source: str) -> None:
    """Outside a program there is no bundle to take shaders from."""
    with pytest.raises(ShimError, match="no program is running"):
        Shaders(device, source)


def test_equal_sources_share_what_was_compiled(device: Device, shaders: Shaders) -> None:
    """A second library of the same text works on when the first is gone, and the other way round."""
    first, second = Shaders(device, SOURCE), Shaders(device, SOURCE)
    first.close()
    values = device.place(torch.zeros(4))
    second.launch("add_one", values, threads=4)
    second.close()
    shaders.launch("add_one", values, threads=4)
    torch.testing.assert_close(device.value(values), torch.full((4,), 2.0))


def test_arguments_do_not_outlive_their_launch(device: Device, shaders: Shaders) -> None:
    """An argument that was not set again is unset, and the run that needs it fails by its name."""
    values = device.place(torch.zeros(4))
    shaders.launch("scale", values, values, 2, threads=4)
    device.value(values)
    with pytest.raises(ShimError, match=r"kernel scale: argument 2 \(factor\) is not set"):
        shaders.launch("scale", values, values, threads=4)
