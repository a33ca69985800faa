"""Parts of outputs: which there are, and what they are judged by."""

from __future__ import annotations

import numpy as np
import pytest

from menagerie.numerics import DEFAULT_TOLERANCES, Dtype, Tolerance
from menagerie.validation.compare import compare, weakest_part


def test_the_part_is_named_and_measured() -> None:
    """Channel 2 is wrong by a tenth of itself, 20 dB, where the whole is at 60."""
    eager = np.ones((2, 4, 8))
    eager[:, 2] = 1e-2
    output = eager.copy()
    output[:, 2] *= 1.1
    part = weakest_part(eager, output, 30.0)
    assert part is not None
    assert (part.axis, part.first, part.last) == (1, 2, 2)
    assert part.snr_db == pytest.approx(20.0)
    mean_power = (3 + 1e-4) / 4
    assert part.level_db == pytest.approx(10 * np.log10(mean_power / 1e-6))


def test_columns_are_taken_together_until_they_are_sixteen_elements() -> None:
    """One row of 40 columns has two parts: the last takes the rest."""
    eager = np.ones((1, 40))
    output = eager.copy()
    output[0, 39] = 2.0
    part = weakest_part(eager, output, 30.0)
    assert part is not None
    assert (part.axis, part.first, part.last) == (1, 16, 39)
    assert part.snr_db == pytest.approx(10 * np.log10(24))


@pytest.mark.parametrize("shape", [(), (0, 4), (31,), (2, 2, 2)])
def test_few_elements_have_no_parts(shape: tuple[int, ...]) -> None:
    """One that is near zero by chance would be all of a part."""
    assert weakest_part(np.ones(shape), np.full(shape, 2.0), 30.0) is None


def test_what_is_not_finite_has_no_error() -> None:
    """Whether infinities match is another rule's; the last row alone is wrong here."""
    eager = np.ones((3, 16))
    eager[0, :8], eager[1, 3] = np.inf, np.nan
    output = np.where(np.arange(3)[:, None] == 2, 1.5, eager)
    part = weakest_part(eager, output, 30.0)
    assert part is not None
    assert (part.axis, part.first, part.last) == (0, 2, 2)


def test_huge_and_tiny_numbers_neither_overflow_nor_vanish() -> None:
    """Squares are formed of what was scaled."""
    for size in (1e300, 1e-300):
        part = weakest_part(np.full((2, 16), size), np.full((2, 16), size * 1.1), 30.0)
        assert part is not None
        assert part.snr_db == pytest.approx(20.0)


def test_the_fact_names_the_part() -> None:
    """A reader finds the channel without looking for it."""
    eager = np.random.default_rng(0).normal(size=(2, 8, 16)).astype(np.float32)
    eager[:, 3] *= 1e-3
    output = eager.copy()
    output[:, 3] *= np.float32(1.01)
    tolerance = DEFAULT_TOLERANCES[Dtype.FLOAT32]
    found = compare(eager, output, Dtype.FLOAT32, tolerance, case=0, name="y")
    assert found.fact == "at 3 of axis 1 alone SNR 40.0 dB is below 50 dB"
    assert found.snr_db > 80.0
    assert found.passed_by is None


def test_a_tolerance_of_an_error_alone_is_judged_by_that() -> None:
    """Without a ratio nothing is asked of parts."""
    eager = np.ones((2, 32), np.float32) * np.array([[1.0], [1e-3]], np.float32)
    output = eager * np.array([[1.0], [1.01]], np.float32)
    found = compare(eager, output, Dtype.FLOAT32, Tolerance(absolute=1e-4), case=0, name="y")
    assert found.passed
