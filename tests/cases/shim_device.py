"""The shim ABI of either runtime, called by C names as a lowered model calls it."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from menagerie.library import library, library_path
from menagerie.shims import Shim, load
from zoo.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# c10's numbers (c10/core/ScalarType.h).
DTYPE_NUMBERS = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}

_SCALARS: Mapping[str, Any] = {
    "double": ctypes.c_double,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "unsigned": ctypes.c_uint,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
}
_HOST = 0  # c10::DeviceType::CPU


class ShimError(Exception):
    """A shim returned failure; the message is the thread's."""


@dataclass
class Handle:
    """An owned handle of the ABI; `kept` is what its memory belongs to."""

    lib: ctypes.CDLL
    pointer: ctypes.c_void_p
    kept: object = None

    def disowned(self) -> ctypes.c_void_p:
        """The pointer, which is given back in a way of its own."""
        pointer, self.pointer = self.pointer, ctypes.c_void_p()
        return pointer

    def __del__(self) -> None:
        self.lib.aoti_torch_delete_tensor_object(self.pointer)


@dataclass(frozen=True)
class Kind:
    """A device: the target of its runtime, its name in symbols, the number of its type."""

    target: str
    symbol: str
    number: int


KINDS = (Kind("cpu", "cpu", _HOST), Kind("metal", "mps", 13))


def built_kinds() -> tuple[Kind, ...]:
    """The devices whose runtime this machine has built."""
    return tuple(kind for kind in KINDS if _is_built(kind.target))


def _is_built(target: str) -> bool:
    try:
        return library_path(target).is_file()
    except SessionError:
        return False


@cache
def shims() -> Mapping[str, Shim]:
    """The one list, by name."""
    return {shim.name: shim for shim in load()}


class Device:
    """Calls shims with arguments by their C names; lists and options spread as the ABI wants them.

    Tensors are placed on the device with their very strides and storage offset, in a storage of
    just their own size. `called` collects the names of the functions that were called.
    """

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.lib = library(kind.target)
        self.called: set[str] = set()

    def symbol(self, operator: str) -> str:
        """The function that computes an operator on this device."""
        return f"aoti_torch_{self.kind.symbol}_{operator}"

    def blob(self, value: torch.Tensor, number: int = _HOST) -> Handle:
        """A handle over a torch tensor's own memory."""
        return self._handle(
            "aoti_torch_create_tensor_from_blob",
            ctypes.c_void_p(value.untyped_storage().data_ptr() or None),
            *_geometry(value.shape, value.stride()),
            ctypes.c_int64(int(value.storage_offset())),
            DTYPE_NUMBERS[value.dtype],
            number,
            0,
            kept=value,
        )

    def empty(self, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> Handle:
        """A new tensor on the device."""
        number = DTYPE_NUMBERS[dtype]
        geometry = _geometry(sizes, strides)
        return self._handle("aoti_torch_empty_strided", *geometry, number, self.kind.number, 0)

    def place(self, value: torch.Tensor) -> Handle:
        """The tensor and all of its storage, on the device."""
        length = value.untyped_storage().nbytes() // value.element_size()
        source = self.blob(value.as_strided((length,), (1,), 0))
        storage = self.empty((length,), (1,), value.dtype)
        self.raw("aoti_torch_copy_", storage.pointer, source.pointer, 0)
        return self.view(storage, value.shape, value.stride(), int(value.storage_offset()))

    def null(self) -> Handle:
        """A null handle."""
        return Handle(self.lib, ctypes.c_void_p())

    def undefined(self) -> Handle:
        """A handle without a tensor."""
        return self._handle("aoti_torch_new_uninitialized_tensor")

    def view(
        self, base: Handle, sizes: Sequence[int], strides: Sequence[int], offset: int
    ) -> Handle:
        """A view of the same storage."""
        return self._handle(
            "aoti_torch__reinterpret_tensor",
            base.pointer,
            *_geometry(sizes, strides),
            ctypes.c_int64(offset),
        )

    def value(self, handle: Handle) -> torch.Tensor:
        """A copy of what is behind a handle, with its strides."""
        sizes, strides = self.geometry(handle)
        number = self.ask("dtype", handle, ctypes.c_int32())
        dtype = next(d for d, known in DTYPE_NUMBERS.items() if known == number)
        if 0 in sizes:
            return torch.empty_strided(sizes, strides, dtype=dtype)
        length = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        address = self.ask("data_ptr", handle, ctypes.c_void_p())
        memory = (ctypes.c_byte * (length * dtype.itemsize)).from_address(address)
        return torch.frombuffer(bytearray(memory), dtype=dtype).as_strided(sizes, strides)

    def geometry(self, handle: Handle) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides behind a handle."""
        axes = self.ask("dim", handle, ctypes.c_int64())
        return self._extents("sizes", handle, axes), self._extents("strides", handle, axes)

    def ask(self, what: str, handle: Handle, into: Any) -> Any:
        """The answer of `aoti_torch_get_<what>`."""
        self.raw(f"aoti_torch_get_{what}", handle.pointer, ctypes.byref(into))
        return into.value

    def operate(self, operator: str, arguments: Mapping[str, Any]) -> list[Handle]:
        """Calls an operator; returns `out`, if it has one, or its results in order."""
        return self.call(self.symbol(operator), **arguments)

    def call(self, name: str, /, **arguments: Any) -> list[Handle]:
        """Calls a shim by its full name.

        Tensors may be handles or torch tensors, lists Python sequences, absent options None, and
        results that are not wanted too.
        """
        spread = _Spread(self)
        parameters = parameters_of(name)
        given = dict(arguments)
        lengths = {f"{parameter}_len_" for _, parameter in parameters}
        for kind, parameter in parameters:
            if parameter in lengths:
                continue
            if parameter.startswith("ret"):
                spread.result(wanted=parameter not in given or given.pop(parameter) is not None)
                continue
            listed = any(other == f"{parameter}_len_" for _, other in parameters)
            spread.add(kind, given.pop(parameter), listed=listed)
            if parameter == "out":
                spread.results = [spread.alive[-1]]
        if given:
            raise TypeError(f"{name} has no parameters {sorted(given)}")
        self.raw(name, *spread.arguments)
        return [
            r if isinstance(r, Handle) else Handle(self.lib, r, spread.alive)
            for r in spread.results
        ]

    def made(self, name: str, *arguments: Any) -> Handle:
        """What a shim makes as its last parameter."""
        return self._handle(name, *arguments)

    def answer(self, name: str, *arguments: Any) -> Any:
        """What a shim returns that does not return a status."""
        self.called.add(name)
        return getattr(self.lib, name)(*arguments)

    def raw(self, name: str, *arguments: Any) -> None:
        """Calls a shim with ctypes' own values.

        Raises:
            ShimError: it failed.
        """
        self.called.add(name)
        if getattr(self.lib, name)(*arguments) != 0:
            raise ShimError(self.lib.menagerie_last_error().decode())

    def _handle(self, name: str, *arguments: Any, kept: object = None) -> Handle:
        pointer = ctypes.c_void_p()
        self.raw(name, *arguments, ctypes.byref(pointer))
        return Handle(self.lib, pointer, kept)

    def _extents(self, what: str, handle: Handle, length: int) -> tuple[int, ...]:
        into = ctypes.POINTER(ctypes.c_int64)()
        self.raw(f"aoti_torch_get_{what}", handle.pointer, ctypes.byref(into))
        return tuple(into[:length])


class _Spread:
    """C arguments of one call, and what they point to."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.arguments: list[Any] = []
        self.alive: list[Any] = []
        self.results: list[Any] = []

    def result(self, *, wanted: bool) -> None:
        """Adds a place for a result, or none."""
        if not wanted:
            self.arguments.append(ctypes.c_void_p())
            return
        self.results.append(ctypes.c_void_p())
        self.arguments.append(ctypes.byref(self.results[-1]))

    def add(self, kind: str, value: Any, *, listed: bool) -> None:
        """Adds one argument of a C type, and its length where it is a list."""
        if isinstance(value, torch.Tensor):
            value = self.device.place(value)
        if listed:
            value = self._list(kind, value)
            self.arguments += [value, ctypes.c_int64(len(value))]
        elif value is None:
            self.arguments.append(None)
        elif isinstance(value, Handle):
            pointer = value.pointer
            self.arguments.append(ctypes.byref(pointer) if kind.endswith("*") else pointer)
        elif kind == "const char*":
            self.arguments.append(value.encode())
        elif kind == "const char**":
            self.arguments.append(ctypes.byref(ctypes.c_char_p(value.encode())))
        elif kind == "const int64_t*":  # its length is an argument before it
            self.arguments.append((ctypes.c_int64 * len(value))(*value))
        else:
            number = _SCALARS[kind.rstrip("*")](value)
            self.arguments.append(ctypes.byref(number) if kind.endswith("*") else number)
        self.alive.append(value)

    def _list(self, kind: str, values: Sequence[Any]) -> Any:
        if kind == "const double**":
            return self._pointers([ctypes.c_double(v) for v in values], ctypes.c_double)
        if kind == "const AtenTensorHandle**":
            handles = [None if v is None else self.device.place(v) for v in values]
            self.alive.append(handles)
            return self._pointers(
                [None if h is None else h.pointer for h in handles], ctypes.c_void_p
            )
        if kind == "const AtenTensorHandle*":
            placed = [v if isinstance(v, Handle) else self.device.place(v) for v in values]
            self.alive.append(placed)
            return (ctypes.c_void_p * len(placed))(*[h.pointer.value for h in placed])
        if kind == "const double*":
            return (ctypes.c_double * len(values))(*values)
        return (ctypes.c_int64 * len(values))(*map(int, values))

    def _pointers(self, values: Sequence[Any], pointee: Any) -> Any:
        self.alive.append(values)
        nothing = ctypes.POINTER(pointee)()
        pointers = [nothing if v is None else ctypes.pointer(v) for v in values]
        return (ctypes.POINTER(pointee) * len(pointers))(*pointers)


def parameters_of(name: str) -> list[tuple[str, str]]:
    """C type and name of each parameter."""
    own = shims()[name].parameters
    text = declared_by_torch()[name] if own is None else own
    pairs = [" ".join(parameter.split()).rsplit(" ", 1) for parameter in text.split(",")]
    return [(kind, parameter) for kind, parameter in pairs]


@cache
def declared_by_torch() -> Mapping[str, str]:
    """The parameters of each function that torch's headers of the ABI declare."""
    folder = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch"
    text = "\n".join(path.read_text() for path in sorted(folder.rglob("*.h")))
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return dict(re.findall(r"AOTI_TORCH_EXPORT\s+\w+\s+(\w+)\s*\(([^()]*)\)\s*;", text))


def _geometry(sizes: Sequence[int], strides: Sequence[int]) -> tuple[Any, ...]:
    lists = [(ctypes.c_int64 * len(values))(*values) for values in (sizes, strides)]
    return (ctypes.c_int64(len(sizes)), *lists)
