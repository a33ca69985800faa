"""What tests do on the double: `scenarios.py LIBRARY NAME...`, each in a process of its own.

A scenario that ends well prints `held`; a fault of the double ends its process, and not the others.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).parents[3] / "cases"))
sys.path.append(str(Path(__file__).parents[3] / "runtime/metal"))

import shim_device
import torch
from load_double import load_double
from shim_device import DTYPE_NUMBERS, KINDS, Device, Handle, ShimError
from test_launch import Shaders

if TYPE_CHECKING:
    from collections.abc import Iterator

METAL = next(kind for kind in KINDS if kind.target == "metal")


def configure(device: Device, **knobs: int) -> None:
    """Changes the double."""
    for name, value in knobs.items():
        device.lib.menagerie_double_set(name.encode(), value)


def count(device: Device, name: str) -> int:
    """How often, or how many objects of a class there are."""
    return int(device.lib.menagerie_double_count(name.encode()))


@contextmanager
def fails(fact: str, otherwise: str) -> Iterator[None]:
    """What happens inside is an error with that fact."""
    said = ""
    try:
        yield
    except ShimError as error:
        said = str(error)
    assert fact in said, said or otherwise


def product(device: Device, a: torch.Tensor, b: torch.Tensor) -> Handle:
    """A product."""
    out = device.empty((a.shape[0], b.shape[1]), (b.shape[1], 1), a.dtype)
    return device.operate("mm_out", {"out": out, "self": a, "mat2": b})[0]


def numbers(device: Device) -> None:
    """Launches, products, copies and fills in one stream, more than one command buffer holds."""
    shaders = Shaders(device)
    counter = device.place(torch.zeros(8))
    a, b = torch.randn(5, 4), torch.randn(4, 8)
    results = []
    for _ in range(30):
        shaders.launch("add_one", counter, threads=8)
        results.append(product(device, a, b))
        shaders.launch("scale", results[-1], counter, 1, threads=8)
    cleared = device.place(torch.ones(3))
    device.raw("aoti_torch_zero_", cleared.pointer)
    assert count(device, "commits") > 1
    for i, result in enumerate(results):
        expected = a @ b
        expected.view(-1)[:8] = i + 1
        torch.testing.assert_close(device.value(result), expected)
    torch.testing.assert_close(device.value(cleared), torch.zeros(3))


def half_products(device: Device) -> int:
    """How many of six products go to the matrix units; all of them are eager's."""
    before = count(device, "by_units")
    for dtype in (torch.float16, torch.bfloat16):
        a, b = torch.randn(256, 24).to(dtype), torch.randn(260, 24).to(dtype)
        for right in (b.t(), b.t().contiguous()):
            found = device.value(product(device, a, right)).float()
            torch.testing.assert_close(found, (a @ right).float(), rtol=1e-2, atol=1e-2)
    repeated = (
        torch.randn(256, 1).half().expand(256, 24),
        torch.randn(1, 260).half().expand(24, 260),
    )
    for left, right in ((repeated[0], torch.randn(24, 260).half()), (a.half(), repeated[1])):
        found = device.value(product(device, left, right)).float()
        torch.testing.assert_close(found, (left @ right).float(), rtol=1e-2, atol=1e-2)
    a, b = torch.randn(256, 24), torch.randn(24, 260)
    torch.testing.assert_close(device.value(product(device, a, b)), a @ b)
    return count(device, "by_units") - before


def half_precision_goes_to_matrix_units(device: Device) -> None:
    """On a GPU of generation 17, float32 does not: the units compute it with fewer digits."""
    configure(device, gpu_generation=17)
    assert half_products(device) == 6 + 2 * 4  # with probes for each dtype
    assert half_products(device) == 6


def older_gpus_have_no_matrix_units(device: Device) -> None:
    """Nor has the phone's GPU of generation 17."""
    configure(device, gpu_generation=17, phone=1)
    assert half_products(device) == 0


def matrix_units_that_err_are_left_out(device: Device) -> None:
    """A probe multiplies whole numbers before the first product."""
    configure(device, gpu_generation=18, phone=1, metal_4=2)
    assert half_products(device) == 2  # the probes


def matrix_units_without_a_compiler_are_left_out(device: Device) -> None:
    """A system may lack Apple's headers for them."""
    configure(device, gpu_generation=19, metal_4=0)
    assert half_products(device) == 0


def commits_grow_rarer(device: Device) -> None:
    """The first command buffer is short, so that the GPU begins; the next are four times as long each.

    A wait ends the run: what follows begins anew.
    """
    shaders = Shaders(device)
    for _ in range(2):
        counter = device.place(torch.zeros(8))
        device.value(counter)
        before = count(device, "commits")
        for _ in range(40 + 160 + 640 - 1):
            shaders.launch("add_one", counter, threads=8)
        assert count(device, "commits") == before + 2
        torch.testing.assert_close(device.value(counter), torch.full((8,), 839.0))
        assert count(device, "commits") == before + 3


def copies_share_the_encoder(device: Device) -> None:
    """What copies and clears dense memory ends no encoder; of any length, from any place."""
    shaders = Shaders(device)
    source, target = device.place(torch.arange(1031.0)), device.place(torch.ones(1031))
    bytes_, cleared = device.place(torch.arange(77).byte()), device.place(torch.ones(77).byte())
    device.value(target)
    before = count(device, "encoders")
    shaders.launch("add_one", source, threads=1031)
    device.raw("aoti_torch_copy_", target.pointer, source.pointer, 0)
    part, hole, place = (
        device.view(base, (31,), (1,), begin)
        for base, begin in ((bytes_, 1), (cleared, 3), (cleared, 40))
    )
    device.raw("aoti_torch_zero_", hole.pointer)
    device.raw("aoti_torch_copy_", place.pointer, part.pointer, 0)
    shaders.launch("add_one", target, threads=1031)
    torch.testing.assert_close(device.value(target), torch.arange(1031.0) + 2)
    expected = torch.ones(77).byte()
    expected[3:34], expected[40:71] = 0, torch.arange(1, 32).byte()
    torch.testing.assert_close(device.value(cleared), expected)
    assert count(device, "encoders") == before + 1


def one_long_row_is_spread(device: Device) -> None:
    """A thread that walked thousands of places would leave the GPU idle, or be ended by the system."""
    length = 4096
    row, index = torch.ones(length), torch.arange(length) % 7
    into = {"self": torch.zeros(7), "indices": [index], "values": row, "accumulate": 1}
    scattered = {
        "out": torch.empty(7),
        "self": torch.zeros(7),
        "dim": 0,
        "index": index,
        "src": row,
    }
    for operator, arguments, threads in (
        ("cumsum", {"self": row, "dim": 0, "dtype": None}, 256),
        ("cummax", {"self": row, "dim": 0}, 256),
        ("index_put", into, length),
        ("scatter_src_out", scattered, length),
    ):
        before = count(device, "threads")
        device.operate(operator, arguments)
        assert count(device, "threads") >= before + threads, operator


def sorting_takes_few_dispatches(device: Device) -> None:
    """Up to 1024 neighbours are sorted by one dispatch, 8400 by 1 + 2 + 3 + 4 + 5 of them, and one takes."""
    for length, dispatches in ((1000, 2), (8400, 16)):
        before = count(device, "dispatches")
        row = {"self": torch.randn(length), "k": 10, "dim": 0, "largest": 1, "sorted": 1}
        device.operate("topk", row)
        assert count(device, "dispatches") == before + dispatches


def first_error(device: Device) -> None:
    """A command buffer fails that was committed before the last one: the run fails."""
    configure(device, failing_buffer=0)
    shaders, counter = Shaders(device), device.place(torch.zeros(8))
    with fails("the double is set to fail", "the GPU's error is lost"):
        for _ in range(50):
            shaders.launch("add_one", counter, threads=8)
        device.value(counter)


def only_device(device: Device) -> None:
    """A process without a session at the screen finds the device in the list of all."""
    configure(device, no_default_device=1)
    numbers(device)


def _mapped(values: torch.Tensor) -> tuple[mmap.mmap, torch.Tensor]:
    memory = mmap.mmap(-1, max(values.nbytes, mmap.PAGESIZE))
    memory[: values.nbytes] = values.numpy().tobytes()
    return memory, torch.frombuffer(memory, dtype=values.dtype)[: values.numel()]


def _lent(device: Device, values: torch.Tensor) -> Handle:
    pointer = ctypes.c_void_p()
    sizes, strides = (ctypes.c_int64 * 1)(values.numel()), (ctypes.c_int64 * 1)(1)
    device.raw(
        "aoti_torch_create_tensor_from_blob", ctypes.c_void_p(values.data_ptr()),
        ctypes.c_int64(1), sizes, strides, ctypes.c_int64(0), DTYPE_NUMBERS[values.dtype],
        METAL.number, 0, ctypes.byref(pointer),
    )  # fmt: skip
    return Handle(device.lib, pointer, values)


def _scale_lent(device: Device, residents: int | None = None) -> Handle:
    """Let a kernel read memory of the caller's, so much of it resident; return its tensor."""
    _, values = _mapped(torch.arange(4096.0))
    lent = _lent(device, values)
    assert residents is None or count(device, "resident") == residents
    out = device.empty((4096,), (1,), torch.float32)
    Shaders(device).launch("scale", out, lent, 2, threads=4096)
    torch.testing.assert_close(device.value(out), torch.arange(4096.0) * 2)
    return lent


def virtual_mac(device: Device) -> None:
    """Where wrapping gives buffers of length zero, memory is copied."""
    configure(device, empty_wraps=1)
    _scale_lent(device)


def long_weights(device: Device) -> None:
    """Memory longer than Metal's longest buffer is read through several; a tensor is in one."""
    pages = 16
    configure(device, most_buffer_bytes=8 * mmap.PAGESIZE)
    length = pages * mmap.PAGESIZE // 4
    _, values = _mapped(torch.arange(length).float())
    lent = _lent(device, values)
    shaders = Shaders(device)
    step = mmap.PAGESIZE // 8
    for begin in range(0, length - step + 1, step):
        out = device.empty((step,), (1,), torch.float32)
        shaders.launch("scale", out, device.view(lent, (step,), (1,), begin), 2, threads=step)
        torch.testing.assert_close(device.value(out), values[begin : begin + step] * 2)
    with fails("more than the device binds at once", "a tensor longer than a buffer was bound"):
        shaders.launch("scale", device.empty((8,), (1,), torch.float32), lent, 2, threads=8)


def weights_stay_resident(device: Device) -> None:
    """Memory that is lent to the device is resident for as long as it is lent, and no longer."""
    lent = _scale_lent(device, residents=1)
    assert count(device, "resident") == 1
    del lent
    assert count(device, "resident") == 0


def without_residency_sets(device: Device) -> None:
    """A device that gives no residency set runs all the same."""
    configure(device, no_residency_sets=1)
    _scale_lent(device)
    assert count(device, "resident") == 0


def changing_sizes_find_buffers_again(device: Device) -> None:
    """A buffer that was given back serves a tensor a little smaller or larger."""
    for size in (1000, 1010, 1020, 970):
        device.empty((size,), (1,), torch.float32)
        buffers = count(device, "DoubleBuffer")
        device.empty((size,), (1,), torch.float32)
        assert count(device, "DoubleBuffer") == buffers == 1


def two_threads_at_once(device: Device) -> None:
    """Each has a stream of its own."""
    a, b = torch.randn(5, 4), torch.randn(4, 8)

    def multiply(own: Device) -> list[torch.Tensor]:
        results = [product(own, a, b) for _ in range(400)]
        return [own.value(result) for result in results]

    with ThreadPoolExecutor(2) as pool:
        for results in pool.map(multiply, (device, Device(METAL))):
            for result in results:
                torch.testing.assert_close(result, a @ b)


def a_long_sum_is_in_parts(device: Device) -> None:
    """Sixteen groups share the terms of a tile, and a second kernel adds their sums."""
    a, b = torch.randn(40, 32767), torch.randn(32767, 40)
    before = {what: count(device, what) for what in ("threads", "dispatches")}
    result = product(device, a / 181, b)
    torch.testing.assert_close(device.value(result), a / 181 @ b, rtol=1e-4, atol=1e-4)
    assert count(device, "dispatches") == before["dispatches"] + 2
    assert count(device, "threads") == before["threads"] + 16 * 128 + 40 * 40


def work_is_left_at_the_end(device: Device) -> None:
    """A process that has computed, and ends without asking for more results, ends well."""
    values = device.place(torch.ones(8))
    Shaders(device).launch("add_one", values, threads=8)
    torch.testing.assert_close(device.value(values), torch.full((8,), 2.0))
    device.raw("aoti_torch_zero_", values.pointer)


def nothing_left(device: Device) -> None:
    """What a run has made is given back, but for the buffers of the pool."""
    numbers(device)
    classes = ("DoubleComputeEncoder", "DoubleCommandBuffer")
    alive = {name: count(device, name) for name in classes}
    assert alive == dict.fromkeys(classes, 0), alive


if __name__ == "__main__":
    shim_device.library = lambda _: load_double(Path(sys.argv[1]))
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())  # in the order in which it is said
    torch.testing.assert_close(torch.ones(1), torch.ones(1))  # imports what each fork would
    gc.freeze()  # what is here already no fork looks through when it ends
    for scenario in sys.argv[2:]:
        print(f"scenario {scenario}", flush=True)
        if (child := os.fork()) == 0:
            globals()[scenario](Device(METAL))
            print("held")
            break
        print(f"ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)
