"""The picture of the longest kernels, and the table beside it."""

from __future__ import annotations

from menagerie.validation.findings import KernelTime, Peaks, Profile
from zoo.report.charts import kernel_bars


def _profile(*names: str) -> Profile:
    kernels = tuple(
        KernelTime(kernel=name, calls=2, milliseconds=8.0 / 2**i, flops=0.0, bytes=2e6)
        for i, name in enumerate(names)
    )
    peaks = Peaks(flops=1e9, bytes=1e9)
    return Profile(threads=1, runs=2, milliseconds=10.0, peaks=peaks, kernels=kernels)


def test_each_kernel_has_its_milliseconds_its_share_and_its_roofline() -> None:
    """4 and 2 ms of a run of 10; a megabyte a call takes 1 ms at the peak of memory."""
    drawn = str(kernel_bars(_profile("first", "second", "third"), most=2))
    assert "4.00 ms, 40.0\xa0%; the roofline allows 1.00 ms" in drawn
    assert "2.00 ms, 20.0\xa0%; the roofline allows 1.00 ms" in drawn
    assert "third" not in drawn


def test_a_long_name_keeps_its_begin_and_its_sizes() -> None:
    """And the tip has all of it, escaped."""
    name = "aoti_torch_cpu_mkldnn__convolution_pointwise 1x16x112x112 by 96x16x1x1 <b>"
    drawn = str(kernel_bars(_profile(name), most=5))
    assert "convolution_p…96x16x1x1 &lt;b&gt;" in drawn
    assert "convolution_pointwise 1x16x112x112 by 96x16x1x1 &lt;b&gt;: 4.00 ms" in drawn


def test_nothing_is_drawn_of_nothing() -> None:
    """A program without kernels has no picture."""
    assert str(kernel_bars(_profile(), most=5)) == ""
