"""What the figures of a Metal artifact are made of, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.metal import Chip, bytes_of

_CHIP = Chip("round", bandwidth=100, throughput=2)


def test_the_roofline_is_the_longer_of_both() -> None:
    """100 MB at 100 GB/s take a millisecond, 4 GFLOP at 2 TFLOP/s two."""
    assert _CHIP.milliseconds(1e8, 0) == pytest.approx(1)
    assert _CHIP.milliseconds(1e8, 4e9) == pytest.approx(2)
    assert _CHIP.milliseconds(4e8, 4e9) == pytest.approx(4)


def test_a_program_reads_its_own_weights_once() -> None:
    """Another program's are not read; integers come with their scales."""
    tensors = {
        "shared": np.zeros((3, 4), np.float32),
        "packed": np.zeros((2, 32), np.int8),
        "packed.scales": np.zeros((2, 1), np.uint16),
        "another's": np.zeros(1000, np.float32),
    }
    assert bytes_of(["shared", "packed", "shared"], tensors) == 48 + 64 + 4
