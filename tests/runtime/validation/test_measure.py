"""Timings of calls whose duration is known."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from menagerie.errors import MenagerieError
from menagerie.host import cores, machine
from menagerie.process import images_of, peak_memory_bytes
from menagerie.profile import latency

if TYPE_CHECKING:
    from collections.abc import Callable

SPIN_S = 0.04


def spin() -> None:
    """Computes for 40 ms of processor time, however long the machine takes to grant them."""
    end = time.process_time() + SPIN_S
    while time.process_time() < end:
        continue


def test_a_call_of_known_length_is_measured() -> None:
    """Processor time is the call's; wall time is no less than one thread needs for it."""
    found = latency(spin, seconds=0.3, threads=1, case=2)
    assert 0.9 * 1e3 * SPIN_S <= found.minimum_ms <= found.median_ms <= found.p90_ms
    assert found.processor_ms is not None
    assert 1e3 * SPIN_S <= found.processor_ms < 1.5 * 1e3 * SPIN_S
    assert (found.threads, found.case) == (1, 2)


@pytest.mark.parametrize(("seconds", "runs"), [(0.0, 3), (60.0, 1000)])
def test_runs_are_bounded(seconds: float, runs: int) -> None:
    """Three calls at least and a thousand at most; one more is made to warm up."""
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    found = latency(call, seconds=seconds, threads=1)
    assert (found.runs, calls) == (runs, runs + 1)
    assert found.processor_ms is None  # too short for a coarse clock


def test_the_machine_is_described() -> None:
    """Processor, cores and system, and this process's own peak."""
    assert f", {cores()} cores, " in machine()
    before = peak_memory_bytes()
    ballast = bytearray(b"x") * (64 << 20)
    assert peak_memory_bytes() >= max(before, len(ballast))


class _Function:
    """A function of a C library as ctypes shows it: it takes types, and is called."""

    def __init__(self, call: Callable[..., object]) -> None:
        self.call = call

    def __call__(self, *arguments: object) -> object:
        return self.call(*arguments)


def test_what_a_mac_has_loaded_is_known() -> None:
    """The loader of macOS is asked for each image by number (dyld(3))."""
    paths = [b"/usr/lib/libSystem.B.dylib", b"/opt/torch/lib/libtorch_cpu.dylib"]
    loader = SimpleNamespace(
        _dyld_image_count=_Function(lambda: len(paths)),
        _dyld_get_image_name=_Function(paths.__getitem__),
    )
    assert images_of(cast("Any", loader)) == [path.decode() for path in paths]


def test_a_system_without_a_list_of_libraries_is_an_error() -> None:
    """Freedom from torch is not claimed where it cannot be known."""
    with pytest.raises(MenagerieError, match="does not tell which libraries"):
        images_of(cast("Any", SimpleNamespace()))
