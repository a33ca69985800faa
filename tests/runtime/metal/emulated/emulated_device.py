"""The Metal runtime driven through the functions that a lowered model calls."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from menagerie import emulator
from menagerie.compilers import zig_program
from menagerie.emulator import ShaderCompiler
from menagerie.library import library

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

METAL = 13  # c10::DeviceType::MPS
_BYTE = 0  # c10::ScalarType::Byte


class DeviceError(Exception):
    """The runtime refused or failed; the message is the thread's."""


def finding(action: Callable[[], object]) -> str:
    """What the runtime says of an action that it must refuse.

    The action runs in a thread of its own, since a thread's first failure stays its message.
    """
    said: list[str] = []

    def run() -> None:
        try:
            action()
        except DeviceError as error:
            said.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert said, "the device found nothing wrong"
    return said[0]


class EmulatedDevice:
    """Compiles, allocates and dispatches.

    Args:
        cache: where compiled shaders are kept.
    """

    def __init__(self, cache: Path) -> None:
        self.lib = library("metal")
        self.cache = cache
        self.configure([str(zig_program())], cache)

    def configure(self, compiler: Sequence[str], cache: Path) -> None:
        """Sets the compiler and the cache."""
        emulator.configure(self.lib, ShaderCompiler(tuple(compiler), cache))

    def check(self, status: int) -> None:
        """Raises what the runtime says if a call has failed."""
        if status != 0:
            raise DeviceError(self.lib.menagerie_last_error().decode())

    def compile(self, source: str) -> Library:
        """The kernels of Metal source."""
        handle = ctypes.c_void_p()
        self.check(
            self.lib.aoti_torch_mps_create_shader_library(source.encode(), ctypes.byref(handle))
        )
        return Library(self, handle)

    def buffer(self, values: NDArray[Any] | int) -> DeviceBuffer:
        """Device memory: a copy of an array, or so many bytes that are not written yet."""
        array = values if isinstance(values, np.ndarray) else None
        length = array.nbytes if array is not None else int(values)  # type: ignore[call-overload]
        handle = ctypes.c_void_p()
        self.check(
            self.lib.aoti_torch_empty_strided(
                ctypes.c_int64(1),
                (ctypes.c_int64 * 1)(length),
                (ctypes.c_int64 * 1)(1),
                _BYTE,
                METAL,
                0,
                ctypes.byref(handle),
            )
        )
        buffer = DeviceBuffer(self, handle, length)
        if array is not None:
            contiguous = np.ascontiguousarray(array)
            ctypes.memmove(buffer.address, contiguous.ctypes.data, length)
        return buffer

    def over(self, address: int, length: int) -> DeviceBuffer:
        """A tensor over device memory that the runtime has allocated at this address."""
        handle = ctypes.c_void_p()
        self.check(
            self.lib.aoti_torch_create_tensor_from_blob(
                ctypes.c_void_p(address),
                ctypes.c_int64(1),
                (ctypes.c_int64 * 1)(length),
                (ctypes.c_int64 * 1)(1),
                ctypes.c_int64(0),
                _BYTE,
                METAL,
                0,
                ctypes.byref(handle),
            )
        )
        return DeviceBuffer(self, handle, length)

    def lend(self, values: NDArray[Any]) -> DeviceBuffer:
        """The array's own memory, which the device must not write."""
        buffer = self.over(values.ctypes.data, values.nbytes)
        buffer.kept = values
        return buffer


@dataclass
class DeviceBuffer:
    """An owned tensor of bytes on the device."""

    device: EmulatedDevice
    handle: ctypes.c_void_p
    length: int
    kept: object = None
    address: int = 0

    def __post_init__(self) -> None:
        self.address = self.synchronized()

    def synchronized(self) -> int:
        """Where the host sees it, when all that was dispatched has run."""
        address = ctypes.c_void_p()
        self.device.check(
            self.device.lib.aoti_torch_get_data_ptr(self.handle, ctypes.byref(address))
        )
        return address.value or 0

    def at(self, offset: int) -> DeviceBuffer:
        """A view of the bytes from an offset on; it shares the memory."""
        handle = ctypes.c_void_p()
        self.device.check(
            self.device.lib.aoti_torch__reinterpret_tensor(
                self.handle,
                ctypes.c_int64(1),
                (ctypes.c_int64 * 1)(self.length - offset),
                (ctypes.c_int64 * 1)(1),
                ctypes.c_int64(offset),
                ctypes.byref(handle),
            )
        )
        return DeviceBuffer(self.device, handle, self.length - offset)

    def unsynchronized(self, dtype: Any) -> NDArray[Any]:
        """A copy of what the host sees now, whatever was dispatched."""
        memory = (ctypes.c_byte * self.length).from_address(self.address)
        return np.frombuffer(bytearray(memory), dtype=dtype)

    def read(self, dtype: Any) -> NDArray[Any]:
        """A copy of the values when all that was dispatched has run."""
        self.synchronized()
        return self.unsynchronized(dtype)

    def __del__(self) -> None:
        self.device.lib.aoti_torch_delete_tensor_object(self.handle)


class Library:
    """Compiled Metal source."""

    def __init__(self, device: EmulatedDevice, handle: ctypes.c_void_p) -> None:
        self.device = device
        self.handle = handle

    def dispatch(
        self,
        name: str,
        arguments: Sequence[DeviceBuffer | int | None],
        threads: Sequence[int],
        group: Sequence[int],
    ) -> None:
        """Encodes a dispatch; None leaves an argument unset."""
        device, lib = self.device, self.device.lib
        function = ctypes.c_void_p()
        device.check(
            lib.aoti_torch_mps_get_kernel_function(
                self.handle, name.encode(), ctypes.byref(function)
            )
        )
        device.check(lib.aoti_torch_mps_start_encoding(function))
        for index, argument in enumerate(arguments):
            if isinstance(argument, DeviceBuffer):
                device.check(lib.aoti_torch_mps_set_arg_tensor(function, index, argument.handle))
            elif argument is not None:
                device.check(
                    lib.aoti_torch_mps_set_arg_int(function, index, ctypes.c_int64(argument))
                )
        device.check(
            lib.aoti_torch_mps_dispatch_array_with_group_size(
                function,
                (ctypes.c_uint64 * len(threads))(*threads),
                ctypes.c_size_t(len(threads)),
                (ctypes.c_uint64 * len(group))(*group),
                ctypes.c_size_t(len(group)),
            )
        )

    def run(
        self,
        name: str,
        arguments: Sequence[DeviceBuffer | int | None],
        threads: Sequence[int],
        group: Sequence[int],
    ) -> None:
        """Dispatches and waits; raises what the device finds."""
        self.dispatch(name, arguments, threads, group)
        self.device.buffer(1)

    def __del__(self) -> None:
        self.device.lib.aoti_torch_mps_delete_shader_library(self.handle)
