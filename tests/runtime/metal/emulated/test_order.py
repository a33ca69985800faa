"""The emulated queue runs work in order, and no earlier than it is waited for."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import numpy as np
from emulated_device import DeviceError, finding

if TYPE_CHECKING:
    from emulated_device import EmulatedDevice, Library

F32 = np.float32


def test_nothing_runs_before_it_is_waited_for(kernels: Library, emulated: EmulatedDevice) -> None:
    """Until it waits, the host sees what was there before; a missing wait shows."""
    values, out = emulated.buffer(np.zeros(64, F32)), emulated.buffer(np.zeros(64, F32))
    kernels.dispatch("add_one", [out, values], [64], [64])
    kernels.dispatch("add_one", [values, out], [64], [64])
    assert not out.unsynchronized(F32).any()
    assert not values.unsynchronized(F32).any()
    out.synchronized()
    assert (out.unsynchronized(F32) == 1).all()
    assert (values.unsynchronized(F32) == 2).all()


def test_operands_live_until_they_are_used(kernels: Library, emulated: EmulatedDevice) -> None:
    """Memory that was freed after it was bound is still there when the work runs."""
    out = emulated.buffer(np.zeros(64, F32))
    operand = emulated.buffer(np.arange(64, dtype=F32))
    middle = emulated.buffer(64 * 4)
    kernels.dispatch("add_one", [middle, operand], [64], [64])
    kernels.dispatch("add_one", [out, middle], [64], [64])
    del operand, middle
    assert (out.read(F32) == np.arange(64) + 2).all()


def test_fresh_memory_is_poisoned(kernels: Library, emulated: EmulatedDevice) -> None:
    """What is not written reads as NaN, so that a read of it shows in the results."""
    out = emulated.buffer(np.zeros(50, F32))
    # Larger than anything that a test gives back: what comes from the pool keeps its values.
    kernels.run("add_one", [out, emulated.buffer(200_000_000)], [50], [50])
    assert np.isnan(out.read(F32)).all()


def test_copies_keep_their_place(kernels: Library, emulated: EmulatedDevice) -> None:
    """A copy between two dispatches sees the first and not the second."""
    lib, check = emulated.lib, emulated.check
    raw = [ctypes.c_void_p(), ctypes.c_void_p()]
    for pointer in raw:
        check(lib.aoti_torch_mps_malloc(ctypes.byref(pointer), ctypes.c_size_t(256)))
        ctypes.memset(pointer, 0, 256)
    views = [emulated.over(pointer.value or 0, 256) for pointer in raw]
    kernels.dispatch("add_one", [views[0], views[0]], [64], [64])
    size, zero = ctypes.c_size_t(128), ctypes.c_size_t(0)
    check(lib.aoti_torch_mps_copy_buffer(raw[0], raw[1], size, zero, size))
    kernels.dispatch("add_one", [views[0], views[0]], [64], [64])
    assert views[1].read(F32).tolist() == [0] * 32 + [1] * 32
    assert (views[0].read(F32) == 2).all()
    del views
    for pointer in raw:
        check(lib.aoti_torch_mps_free(pointer))


def test_work_after_a_failure_is_dropped(kernels: Library, emulated: EmulatedDevice) -> None:
    """What follows a command that fails does not run; the next work does."""
    out = emulated.buffer(np.zeros(64, F32))

    def fail_then_work() -> None:
        kernels.dispatch("write_at", [out, 64], [32], [32])
        kernels.dispatch("add_one", [out, out], [64], [64])
        try:
            out.synchronized()
        except DeviceError:
            assert not out.unsynchronized(F32).any()
            kernels.run("add_one", [out, out], [64], [64])
            raise

    assert "out of bounds" in finding(fail_then_work)
    assert (out.read(F32) == 1).all()


def test_queues_of_two_threads(kernels: Library, emulated: EmulatedDevice) -> None:
    """Threads work side by side, each on a queue of its own, with barriers in all of them."""
    wrong: list[float] = []

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).standard_normal(64 * 200).astype(F32)
        operand, out = emulated.buffer(values), emulated.buffer(values.nbytes)
        for _ in range(5):
            kernels.run("reverse_groups", [out, operand], [values.size], [64])
            expected = values.reshape(-1, 64)[:, ::-1].ravel()
            wrong.append(float(np.abs(out.read(F32) - expected).max()))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0.0] * 15
