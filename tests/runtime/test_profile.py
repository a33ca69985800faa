"""A profile names every kernel and counts its work; nothing is recorded unless asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from menagerie import cli
from menagerie.errors import SessionError
from menagerie.profile import kernel_rows, profile, table
from menagerie.session import Session
from menagerie.timing import measure_kernels
from menagerie.validation.findings import KernelTime, Peaks, Profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from menagerie.validation.findings import KernelTime as Kernel


def _profiled(folder: Path, image: np.ndarray) -> Profile:
    with Session(folder, threads=1) as session:
        return profile(session, lambda: session.run({"image": image}), threads=1, seconds=0.0)


@pytest.fixture
def image() -> np.ndarray:
    """What `ConvNet` takes."""
    return np.ones((1, 3, 20, 20), np.float32)


def _named(found: Profile, part: str) -> Kernel:
    [kernel] = [each for each in found.kernels if part in each.kernel]
    return kernel


def test_flops_and_bytes_of_products_are_those_of_arithmetic(
    bundles: Callable[[str], Path], image: np.ndarray
) -> None:
    """Two a multiplication and addition; operands and result once."""
    found = _profiled(bundles("image"), image)
    assert found.runs == 3
    # [1, 3, 20, 20] by [16, 3, 3, 3], stride 2: 16 maps of 10 x 10, each number of 27 products.
    stem = _named(found, "1x3x20x20 by 16x3x3x3")
    assert stem.calls == 3
    assert stem.flops == 3 * 2 * 27 * 16 * 10 * 10
    assert stem.bytes == 3 * 4 * (3 * 20 * 20 + 16 * 27 + 16 * 10 * 10)
    # Depthwise: nine products a number.
    assert _named(found, "by 16x1x3x3").flops == 3 * 2 * 9 * 16 * 10 * 10
    # The head: [1, 32] by [32, 40].
    assert _named(found, "1x32 by 32x40").flops == 3 * 2 * 32 * 40


def test_generated_kernels_are_named_with_their_bytes(
    bundles: Callable[[str], Path], image: np.ndarray
) -> None:
    """They compute no products."""
    generated = [k for k in _profiled(bundles("image"), image).kernels if "cpp_fused" in k.kernel]
    assert generated
    for kernel in generated:
        assert kernel.calls % 3 == 0
        assert kernel.flops == 0
        assert kernel.bytes > 0
        assert kernel.bytes % 4 == 0


def test_bytes_of_a_dynamic_size_follow_the_run(bundles: Callable[[str], Path]) -> None:
    """They are counted when the kernel is called."""

    def moved(frames: int) -> float:
        inputs = {"frames": np.ones((1, frames, 8), np.float32), "keep": np.ones((1, frames), bool)}
        with Session(bundles("sequence"), threads=1) as session:
            found = profile(session, lambda: session.run(inputs), threads=1, seconds=0.0)
        return sum(k.bytes for k in found.kernels if "cpp_fused" in k.kernel)

    assert moved(8) < moved(16) < moved(32)


def test_results_are_the_same_while_kernels_are_timed(
    bundles: Callable[[str], Path], image: np.ndarray
) -> None:
    """Bit for bit."""
    with Session(bundles("image"), threads=1) as session:
        before = session.run({"image": image})["out0"]
        session.set_profiling(on=True)
        assert np.array_equal(session.run({"image": image})["out0"], before)


def test_nothing_is_noted_unless_asked_for(
    bundles: Callable[[str], Path], image: np.ndarray
) -> None:
    """And starting anew forgets what was recorded."""
    with Session(bundles("image"), threads=1) as session:
        with pytest.raises(SessionError, match="set profiling first"):
            session.kernel_times()
        session.set_profiling(on=True)
        assert session.kernel_times() == ()
        session.run({"image": image})
        assert session.kernel_times()
        session.set_profiling(on=True)
        assert session.kernel_times() == (), "started anew, what was recorded is forgotten"


def test_kernels_take_no_longer_than_the_runs(
    bundles: Callable[[str], Path], image: np.ndarray
) -> None:
    """They are parts of them."""
    found = _profiled(bundles("image"), image)
    assert 0 < sum(map(found.share, found.kernels)) <= 1


def test_the_roofline_is_the_slower_of_both_peaks() -> None:
    """By hand."""
    peaks = Peaks(flops=100e9, bytes=10e9)
    kernel = KernelTime(kernel="x", calls=1, milliseconds=4.0, flops=200e6, bytes=10e6)
    found = Profile(threads=1, runs=1, milliseconds=8.0, peaks=peaks, kernels=(kernel,))
    # 2 ms of arithmetic, 1 ms of memory, 4 ms taken.
    assert found.of_roofline(kernel) == pytest.approx(0.5)
    assert found.share(kernel) == pytest.approx(0.5)
    row, rest = kernel_rows(found, 5)
    assert (rest.milliseconds, rest.name) == ("4.000", "between kernels")
    assert (row.gflops, row.gigabytes, row.of_roofline) == ("50.0", "2.5", "0.50")


def test_the_table_says_what_is_left_out() -> None:
    """By hand."""
    kernels = tuple(
        KernelTime(kernel=f"k{i}", calls=2, milliseconds=10.0 - i, flops=0.0, bytes=1e6)
        for i in range(4)
    )
    peaks = Peaks(flops=1e9, bytes=1e9)
    found = Profile(threads=2, runs=2, milliseconds=20.0, peaks=peaks, kernels=kernels)
    lines = table("main", found, most=2).splitlines()
    assert lines[0].startswith("main: 20.0 ms a run, 2 runs on 2 threads")
    assert "7.500" in lines[-2]  # (8 + 7) / 2 runs
    assert "2 kernels more" in lines[-2]
    assert "3.000" in lines[-1]  # 20 - (10 + 9 + 8 + 7) / 2
    assert "between kernels" in lines[-1]


def test_the_command_prints_a_profile_as_json(
    bundles: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """With everything that the table says."""
    folder = str(bundles("image"))
    assert cli.main(["bench", folder, "--profile", "--json", "--seconds", "0.05"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["threads"] == 1
    assert 0 < sum(kernel["share"] for kernel in document["kernels"]) <= 1
    assert document["peaks"]["flops"] > 0
    assert sum("cpp_fused" in kernel["kernel"] for kernel in document["kernels"]) > 0


def test_a_command_needs_no_standard_error(bundles: Callable[[str], Path]) -> None:
    """As a shell's `2>&-` starts it: what goes on, warnings and errors are then for nobody."""
    place, timing = Path(sys.executable).with_name("menagerie"), ("--seconds", "0.05")
    for words, code in (((bundles("image"), *timing, "--allow-unsigned"), 0), (("nowhere/",), 2)):
        command = ["/bin/sh", "-c", '"$@" 2>&-', "sh", place, "bench", *words]
        assert subprocess.run(command, capture_output=True, check=False).returncode == code


def test_the_largest_golden_case_is_profiled(bundles: Callable[[str], Path]) -> None:
    """As it is the one that is timed."""
    found = measure_kernels(bundles("sequence"), threads=1, seconds=0.0)
    assert any(each.flops for each in found.kernels)
