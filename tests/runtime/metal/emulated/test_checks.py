"""The emulated device finds what a GPU would punish, each time it happens, and says where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from emulated_device import DeviceBuffer, EmulatedDevice, Library, finding
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

BYTES = 256


def judged(
    kernels: Library, name: str, arguments: Sequence[DeviceBuffer | int | None], threads: int = 32
) -> str:
    """What the device finds when one group of so many threads runs."""
    return finding(lambda: kernels.run(name, arguments, [threads], [threads]))


@pytest.fixture
def out(emulated: EmulatedDevice) -> DeviceBuffer:
    """256 bytes of zero."""
    return emulated.buffer(np.zeros(BYTES, np.uint8))


@pytest.mark.parametrize(
    ("index", "place"),
    [
        (64, "at byte 256 of argument 1 (in), which has 256 bytes"),
        (-1, "4 bytes before argument 1 (in), which has 256 bytes"),
        (10**9, "at byte 4000000000 of argument 1 (in)"),
        (-(10**9), "4000000000 bytes before argument 1 (in)"),
    ],
)
def test_read_out_of_bounds(
    kernels: Library, emulated: EmulatedDevice, out: DeviceBuffer, index: int, place: str
) -> None:
    """A read outside its buffer, just or far, names kernel, thread, argument and byte."""
    values = emulated.buffer(np.zeros(64, np.float32))
    said = judged(kernels, "read_at", [out, values, index])
    assert "kernel read_at, thread (3, 0, 0)" in said
    assert f"reads 4 bytes out of bounds, {place}" in said


@pytest.mark.parametrize("index", [64, -1, 10**9, -(10**9)])
def test_write_out_of_bounds(kernels: Library, out: DeviceBuffer, index: int) -> None:
    """A write outside its buffer is found before it happens."""
    said = judged(kernels, "write_at", [out, index])
    assert "writes 4 bytes out of bounds" in said
    assert "argument 0 (out)" in said
    assert not out.read(np.uint8).any()


@pytest.mark.parametrize(
    ("kind", "bytes_"),
    [
        ("bool", 1), ("char", 1), ("short", 2), ("half", 2), ("bfloat", 2), ("int", 4),
        ("float", 4), ("long", 8), ("half2", 4), ("half4", 8), ("float2", 8), ("float4", 16),
        ("float3", 16), ("char3", 4), ("long2", 16), ("long4", 32), ("block", 44),
    ],
)  # fmt: skip
def test_every_type_is_checked(
    kernels: Library, emulated: EmulatedDevice, kind: str, bytes_: int
) -> None:
    """The last element of a buffer may be read, the one after it not, whatever its type."""
    count = 7
    values, out = (emulated.buffer(np.zeros(count * bytes_, np.uint8)) for _ in range(2))
    kernels.run(f"touch_{kind}", [out, values, count - 1], [1], [1])
    said = judged(kernels, f"touch_{kind}", [out, values, count], 1)
    assert f"at byte {count * bytes_} of argument 1 (in)" in said


def test_bounds_of_a_view(kernels: Library, out: DeviceBuffer) -> None:
    """A buffer bound at an offset reaches from there to its end."""
    kernels.run("add_one", [out, out.at(16)], [60], [60])
    said = judged(kernels, "add_one", [out.at(16), out.at(16)], 61)
    assert "at byte 240 of argument" in said


def test_atomic_out_of_bounds(kernels: Library, out: DeviceBuffer) -> None:
    """Atomic functions are checked like other accesses."""
    assert "out of bounds, at byte 256" in judged(kernels, "add_atomically_at", [out, 64])


def test_no_hit_on_another_buffer(kernels: Library, emulated: EmulatedDevice) -> None:
    """An index as large as the distance of two buffers finds the other one, unless bound, closed."""
    first, second = (emulated.buffer(np.zeros(64, np.float32)) for _ in range(2))
    index = (second.address - first.address) // 4
    assert "out of bounds" in judged(kernels, "write_at", [first, index])
    assert not second.read(np.float32).any()


def test_read_only_memory(kernels: Library, emulated: EmulatedDevice) -> None:
    """Lent memory, such as mapped weights, is never written."""
    weights = np.ones(64, np.float32)
    said = judged(kernels, "add_one", [emulated.lend(weights), emulated.lend(weights)])
    assert "writes 4 bytes to read-only memory, at byte 0 of argument 0 (out)" in said
    assert (weights == 1).all()


def test_misaligned(kernels: Library, out: DeviceBuffer) -> None:
    """An access must be aligned to its size."""
    assert "writes 4 bytes misaligned, at byte 2" in judged(kernels, "misaligned", [out, 2])
    kernels.run("misaligned", [out, 8], [32], [32])


def test_uninitialised_threadgroup_memory(kernels: Library, out: DeviceBuffer) -> None:
    """Threadgroup memory holds nothing until a thread of this group has written it."""
    said = judged(kernels, "uninitialised", [out], 8)
    assert "thread (2, 0, 0)" in said
    assert "reads uninitialised threadgroup memory, at byte 20" in said


@pytest.mark.parametrize("index", [8, -1, 10**6, -(10**6)])
def test_threadgroup_memory_out_of_bounds(kernels: Library, out: DeviceBuffer, index: int) -> None:
    """An index out of a threadgroup array hits neither its neighbour nor anything else."""
    said = judged(kernels, "local_at", [out, index], 8)
    assert "thread (2, 0, 0)" in said
    assert "reads 4 bytes out of bounds" in said
    assert "a threadgroup variable, which has 32 bytes" in said


def test_too_much_threadgroup_memory(kernels: Library, out: DeviceBuffer) -> None:
    """A group has 32 KiB of memory."""
    said = judged(kernels, "much_memory", [out])
    assert "needs 32772 bytes of threadgroup memory; there are 32768" in said


def test_missing_barriers(kernels: Library, out: DeviceBuffer) -> None:
    """What another thread writes may be read only after a barrier, and written only after one."""
    assert "uninitialised" in judged(kernels, "missing_barrier", [out])
    said = judged(kernels, "late_write", [out], 64)
    assert "reads what was touched by thread 31 of the group without a barrier between" in said
    said = judged(kernels, "early_write", [out], 64)
    assert (
        "writes what was touched by several threads of the group without a barrier between" in said
    )


def test_simdgroup_barrier_orders_its_simd_group(kernels: Library, out: DeviceBuffer) -> None:
    """Within a SIMD group its own barrier is enough."""
    kernels.run("simd_is_enough", [out], [64], [64])
    assert (out.read(np.float32) == (np.arange(64) ^ 1)).all()


def test_divergent_barriers(kernels: Library, out: DeviceBuffer) -> None:
    """A barrier must be reached by all threads, and be the same one."""
    said = judged(kernels, "some_return", [out], 64)
    assert "thread (0, 0, 0)" in said
    assert "waits at a barrier that thread 40 does not come to" in said
    said = judged(kernels, "two_barriers", [out], 64)
    assert "waits at a barrier that thread 0 does not come to" in said


def test_divergent_simd_operations(kernels: Library, out: DeviceBuffer) -> None:
    """Threads of a SIMD group meet in one operation."""
    said = judged(kernels, "two_simd_operations", [out])
    assert "thread (10, 0, 0)" in said
    assert "at another SIMD operation than thread 0" in said


def test_inactive_lane(kernels: Library, out: DeviceBuffer) -> None:
    """The value of a thread that did not come to the operation is no value."""
    said = judged(kernels, "inactive_lane", [out])
    assert "reads lane 20 of its SIMD group, which is not active" in said


def test_matrices_need_all_lanes(kernels: Library, emulated: EmulatedDevice) -> None:
    """All lanes of a SIMD group take part in its matrices, and mean the same ones."""
    given, out = emulated.buffer(np.ones(256, np.float32)), emulated.buffer(1024)
    said = judged(kernels, "matrix_of_some", [out, given])
    assert "reads lane 31 of its SIMD group, which is not active" in said
    said = judged(kernels, "matrix_by_lane", [out, given])
    assert "thread (1, 0, 0)" in said
    assert "means another matrix than lane 0 of its SIMD group" in said


def test_matrices_are_within_memory(kernels: Library, emulated: EmulatedDevice) -> None:
    """Every element that a matrix is loaded from is checked."""
    given, out = emulated.buffer(np.ones(256, np.float32)), emulated.buffer(1024)
    said = judged(kernels, "matrix_out_of_bounds", [out, given])
    assert "bytes out of bounds, at byte 1200 of argument 1 (in)" in said


def test_division_by_zero(kernels: Library, emulated: EmulatedDevice, out: DeviceBuffer) -> None:
    """An integer division by zero is a finding, not the end of the process."""
    said = judged(kernels, "divide", [out, emulated.buffer(np.array([5, 0], np.int32))], 2)
    assert "thread (1, 0, 0)" in said
    assert "divides an integer by zero" in said


@pytest.mark.parametrize(("name", "most"), [("at_most_48", 48), ("add_one", 1024)])
def test_group_too_large(kernels: Library, out: DeviceBuffer, name: str, most: int) -> None:
    """A group has no more threads than the kernel says, nor more than the device takes."""
    said = finding(lambda: kernels.run(name, [out, out], [4096], [most + 1]))
    assert f"a group of {most + 1} threads" in said
    assert str(most) in said


def test_argument_unset(kernels: Library, out: DeviceBuffer) -> None:
    """A dispatch with an argument missing is refused, and names it."""
    assert "kernel add_one: argument 1 (in) is not set" in judged(kernels, "add_one", [out, None])


def test_first_finding_wins(kernels: Library, emulated: EmulatedDevice) -> None:
    """Of many threads that do wrong, spread over processors, the first group's is reported."""
    short = emulated.buffer(np.zeros(20_000, np.float32))
    long_ = emulated.buffer(np.zeros(100_000, np.float32))
    said = {
        finding(lambda: kernels.run("add_one", [long_, short], [100_000], [64])) for _ in range(5)
    }
    assert len(said) == 1
    assert "thread (20000, 0, 0)" in said.pop()


@given(
    length=st.integers(1, 40),
    indices=st.lists(st.integers(-3, 43), min_size=1, max_size=40),
    group=st.integers(1, 64),
)
def test_gathering(
    kernels: Library, emulated: EmulatedDevice, length: int, indices: list[int], group: int
) -> None:
    """Indices are all right and give numpy's values, or the first wrong one is found."""
    values = np.arange(length, dtype=np.float32) * 3
    out = emulated.buffer(np.zeros(len(indices), np.float32))
    operands = [out, emulated.buffer(values), emulated.buffer(np.array(indices, np.int32))]
    wrong = [i for i, index in enumerate(indices) if not 0 <= index < length]
    if wrong:
        said = finding(lambda: kernels.run("gather", operands, [len(indices)], [group]))
        assert f"thread ({wrong[0]}, 0, 0)" in said
    else:
        kernels.run("gather", operands, [len(indices)], [group])
        assert (out.read(np.float32) == values[indices]).all()
