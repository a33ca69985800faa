"""Every handle function, called through the C ABI of this runtime and of PyTorch's own library."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shim_device import DTYPE_NUMBERS, KINDS, Device, Handle, ShimError

from tests.examples import examples

LENGTH = 48  # elements of a storage that holds any view drawn here
NUMBERS = {
    "dim": ctypes.c_int64, "numel": ctypes.c_int64, "storage_offset": ctypes.c_int64,
    "storage_size": ctypes.c_int64, "dtype": ctypes.c_int32, "device_type": ctypes.c_int32,
}  # fmt: skip


class Torch(Device):
    """The same functions of libtorch_cpu."""

    def __init__(self) -> None:
        super().__init__(KINDS[0])
        self.lib = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))

    def raw(self, name: str, *arguments: Any) -> None:
        """Calls a shim; its message goes to standard error."""
        if getattr(self.lib, name)(*arguments) != 0:
            raise ShimError(name)


OURS, TORCH = Device(KINDS[0]), Torch()


@dataclass(frozen=True)
class View:
    """Sizes, strides and an offset, all in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def extent(self) -> int:
        """From the first element to one past the last."""
        if 0 in self.sizes:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))

    def elements(self) -> list[int]:
        """Where each is in the storage."""
        places = torch.arange(self.offset + self.extent())
        return places.as_strided(self.sizes, self.strides, self.offset).flatten().tolist()


@dataclass(frozen=True)
class Step:
    """One function that makes a handle of another, with what it takes besides."""

    name: str
    view: View = View((), (), 0)


@st.composite
def views(draw: st.DrawFn, lowest: int = 0) -> View:
    """Up to three axes, of size 0 too, often beyond what there is."""
    sizes = draw(st.lists(st.integers(0, 3), max_size=3))
    strides = [draw(st.sampled_from((0, 1, 1, 2, 3, 6))) for _ in sizes]
    return View(tuple(sizes), tuple(strides), draw(st.integers(lowest, 8)))


MAKERS = ("as_strided", "_alloc_from_pool", "clone", "clone_preserve_strides", "new_tensor_handle",
          "assign_tensors_out")  # fmt: skip
STEPS = st.lists(
    st.builds(Step, st.just("_reinterpret_tensor"), views(lowest=-4))
    | st.builds(Step, st.sampled_from(MAKERS), views()),
    max_size=4,
)


def _list(values: tuple[int, ...]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def made(device: Device, base: Handle, step: Step) -> Handle:
    """The handle that a step makes."""
    function, view = f"aoti_torch_{step.name}", step.view
    shape = ctypes.c_int64(len(view.sizes)), _list(view.sizes), _list(view.strides)
    match step.name:
        case "_reinterpret_tensor":
            return device.made(function, base.pointer, *shape, ctypes.c_int64(view.offset))
        case "_alloc_from_pool":  # as the storage's bits
            offset = ctypes.c_int64(8 * view.offset)
            return device.made(function, base.pointer, offset, DTYPE_NUMBERS[torch.int64], *shape)
        case "as_strided":  # of the base's axes
            axes = device.ask("dim", base, ctypes.c_int64())
            sizes = (*view.sizes, 1, 1, 1)[:axes]
            return device.made(
                function, base.pointer, _list(sizes), _list((*view.strides, 1, 1, 1)[:axes])
            )
    return device.made(function, base.pointer)


def answers(device: Device, handle: Handle) -> dict[str, Any]:
    """All that can be asked about a handle, and its values."""
    found: dict[str, Any] = {what: device.ask(what, handle, of()) for what, of in NUMBERS.items()}
    found["geometry"] = device.geometry(handle)
    found["no_data"] = device.ask("data_ptr", handle, ctypes.c_void_p()) is None
    for what in ("size", "stride"):
        for axis in range(-4, 4):
            number = ctypes.c_int64()
            try:
                arguments = handle.pointer, ctypes.c_int64(axis), ctypes.byref(number)
                device.raw(f"aoti_torch_get_{what}", *arguments)
                found[f"{what} {axis}"] = number.value
            except ShimError:
                found[f"{what} {axis}"] = "refused"
    found["values"] = device.value(handle).tolist()
    return found


def outcome(device: Device, base: Handle, step: Step) -> Handle | None:
    """The handle that a step makes, None where it is refused."""
    try:
        return made(device, base, step)
    except ShimError:
        return None


def reaches_outside(base: dict[str, Any], step: Step) -> bool:
    """Whether a view has elements that the storage has not, which torch leaves to the caller."""
    if step.name not in ("_reinterpret_tensor", "_alloc_from_pool"):
        return False
    pool = step.name == "_alloc_from_pool"
    offset = step.view.offset + (0 if pool else base["storage_offset"])
    widths = {number: dtype.itemsize for dtype, number in DTYPE_NUMBERS.items()}
    width = 8 if pool else widths[base["dtype"]]
    end = (offset + step.view.extent()) * width
    return offset < 0 or (step.view.extent() > 0 and end > base["storage_size"])


@given(st.sampled_from(list(DTYPE_NUMBERS)), st.integers(0, 3), STEPS)
@example(torch.float32, 0, [Step("_reinterpret_tensor", View((2, 3), (3, 1), 6))] * 2)
@example(torch.float32, 2, [Step("_reinterpret_tensor", View((4,), (1,), -2))])
@example(torch.float32, 0, [Step("_reinterpret_tensor", View((0, 3), (1, 1), 5)), Step("clone")])
@example(
    torch.uint8,
    0,
    [Step("_reinterpret_tensor", View((0,), (0,), 0)), Step("clone"), Step("_reinterpret_tensor")],
)
@example(torch.int64, 1, [Step("_alloc_from_pool", View((2,), (1,), 0))])
@settings(max_examples=examples(100, 300), deadline=None)
def test_handles_answer_as_torchs_do(dtype: torch.dtype, start: int, steps: list[Step]) -> None:
    """Whatever is made of what; only a view beyond its storage is refused here and made there."""
    memory = (torch.arange(LENGTH // 2) % 7).to(dtype)
    bases = [d.blob(memory.clone()[start:]) for d in (OURS, TORCH)]  # kept: they hold the memory
    ours, theirs = bases
    for step in steps:
        before = answers(OURS, ours)
        assert before == answers(TORCH, theirs)
        outside = reaches_outside(before, step)
        found, wanted = outcome(OURS, ours, step), outcome(TORCH, theirs, step)
        if outside or wanted is None:
            assert found is None, step
            return
        assert found is not None, step
        ours, theirs = found, wanted
    assert answers(OURS, ours) == answers(TORCH, theirs)


@given(views(), views(), st.sampled_from([torch.float32, torch.int32, torch.float16]))
@example(View((4,), (2,), 0), View((4,), (2,), 1), torch.float32)  # rows between rows
@example(
    View((3,), (0,), 0), View((3,), (1,), 4), torch.float32
)  # one element, written three times
@example(View((4,), (1,), 0), View((1,), (1,), 2), torch.float32)  # a row to all rows
@settings(max_examples=300, deadline=None)
def test_copies_within_a_storage_are_torchs(target: View, source: View, dtype: torch.dtype) -> None:
    """The same are refused; what is written is the same where no element is read after that."""
    results = []
    for device in (OURS, TORCH):
        memory = torch.arange(LENGTH).to(torch.float32)
        base = device.blob(memory)
        into = device.view(base, target.sizes, target.strides, target.offset)
        if dtype is torch.int32:  # the same memory's bits
            shape = ctypes.c_int64(1), _list((LENGTH,)), _list((1,))
            number = ctypes.c_int64(0), DTYPE_NUMBERS[dtype]
            base = device.made("aoti_torch__alloc_from_pool", base.pointer, *number, *shape)
        elif dtype is torch.float16:  # other memory
            base = device.blob(memory.half())
        of = device.view(base, source.sizes, source.strides, source.offset)
        try:
            device.raw("aoti_torch_copy_", into.pointer, of.pointer, 0)
            results.append(memory.tolist())
        except ShimError:
            results.append([])
    refused = [not found for found in results]
    assert refused[0] == refused[1], results
    places = target.elements()
    apart = not {*places} & {*source.elements()} and len({*places}) == len(places)
    if apart or dtype is torch.float16:
        assert results[0] == results[1] or len({*places}) < len(places)


@given(views())
@settings(max_examples=100, deadline=None)
def test_zero_clears_what_torchs_does(view: View) -> None:
    """The elements of the view, and no other."""
    results = []
    for device in (OURS, TORCH):
        memory = torch.ones(LENGTH)
        handle = device.view(device.blob(memory), view.sizes, view.strides, view.offset)
        device.raw("aoti_torch_zero_", handle.pointer)
        results.append(memory.tolist())
    assert results[0] == results[1]


@given(views(lowest=-1), st.booleans())
@settings(max_examples=100, deadline=None)
def test_tensors_of_nothing_are_torchs(view: View, from_blob: bool) -> None:
    """New memory, and a null pointer for what has no elements."""
    number = DTYPE_NUMBERS[torch.float64]
    shape = ctypes.c_int64(len(view.sizes)), _list(view.sizes), _list(view.strides)
    results = []
    for device in (OURS, TORCH):
        if from_blob and view.extent() > 0:
            return
        name = "create_tensor_from_blob" if from_blob else "empty_strided"
        blob = (ctypes.c_void_p(), *shape, ctypes.c_int64(max(view.offset, 0)), number, 0, 0)
        arguments = blob if from_blob else (*shape, number, 0, 0)
        handle = device.made(f"aoti_torch_{name}", *arguments)
        if not from_blob:
            device.raw("aoti_torch_zero_", handle.pointer)
        results.append(answers(device, handle))
    assert results[0] == results[1]


REFUSED_HERE = {  # what torch does, and this runtime refuses rather than guess
    "a pool view between elements": ("_alloc_from_pool", View((1,), (1,), 0), "whole elements"),
    "a size below zero": ("_reinterpret_tensor", View((-1,), (1,), 0), "is negative"),
    "a stride below zero": ("_reinterpret_tensor", View((2,), (-1,), 4), "is negative"),
}


@pytest.mark.parametrize("case", REFUSED_HERE)
def test_what_torch_takes_and_this_runtime_refuses(case: str) -> None:
    """Each with the fact; besides views beyond their storage, and items of another dtype."""
    name, view, fact = REFUSED_HERE[case]
    base = OURS.blob(torch.zeros(LENGTH))
    shape = ctypes.c_int64(len(view.sizes)), _list(view.sizes), _list(view.strides)
    pool = name == "_alloc_from_pool"
    before: tuple[Any, ...] = (ctypes.c_int64(2), DTYPE_NUMBERS[torch.float32]) if pool else ()
    after = () if pool else (ctypes.c_int64(view.offset),)
    with pytest.raises(ShimError, match=fact):
        OURS.made(f"aoti_torch_{name}", base.pointer, *before, *shape, *after)


ITEMS = {
    "float32": torch.float32, "float64": torch.float64, "uint8": torch.uint8, "int8": torch.int8,
    "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "bool": torch.bool,
}  # fmt: skip


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("view", [View((), (), 3), View((1, 1), (9, 9), 5), View((2,), (1,), 0),
                                  View((0,), (1,), 0)])  # fmt: skip
def test_items_are_torchs(name: str, view: View) -> None:
    """The one element of a view, with any axes; of more or none the same refusal."""
    results: list[bytes | None] = []
    for device in (OURS, TORCH):
        memory = torch.arange(LENGTH).to(ITEMS[name])
        handle = device.view(device.blob(memory), view.sizes, view.strides, view.offset)
        value = (ctypes.c_byte * 8)()
        try:
            device.raw(f"aoti_torch_item_{name}", handle.pointer, ctypes.byref(value))
            results.append(bytes(value)[: ITEMS[name].itemsize])
        except ShimError:
            results.append(None)
    assert results[0] == results[1]
