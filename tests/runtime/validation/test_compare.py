"""The metrics against plain arithmetic, and the rule by which an output passes."""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from menagerie.numerics import DEFAULT_TOLERANCES, Dtype, Tolerance
from menagerie.tensor_files import widen
from menagerie.validation.compare import compare, error_histogram, measure, same_bits
from menagerie.validation.findings import Bound

sys.path.insert(0, str(Path(__file__).parent))

from verdicts import VERDICTS, Verdict

if TYPE_CHECKING:
    from menagerie.validation.findings import OutputParity

FINITE = st.floats(-1e6, 1e6, width=32)
PAIRS = st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=40)


def judge(
    ref: object, out: object, tolerance: Tolerance | None, dtype: Dtype = Dtype.FLOAT32
) -> OutputParity:
    """Compares two lists as tensors of `dtype`."""
    kind = np.dtype(dtype.value)
    return compare(np.asarray(ref, kind), np.asarray(out, kind), dtype, tolerance, case=0, name="y")


@given(PAIRS)
def test_metrics_are_those_of_plain_arithmetic(pairs: list[tuple[float, float]]) -> None:
    """Max abs, max rel, SNR and cosine equal their definitions, summed exactly."""
    ref = [float(np.float32(r)) for r, _ in pairs]
    out = [float(np.float32(o)) for _, o in pairs]
    found = measure(np.array(ref), np.array(out))
    max_abs = max(abs(o - r) for r, o in zip(ref, out, strict=True))
    assert found.max_abs == max_abs
    largest = max(map(abs, ref))
    if largest > 0:
        assert found.max_rel == max_abs / largest
    signal = math.hypot(*ref)
    noise = math.hypot(*(o - r for r, o in zip(ref, out, strict=True)))
    if signal > 0 and noise > 0:
        expected = 20 * (math.log10(signal) - math.log10(noise))
        assert found.snr_db == pytest.approx(expected, abs=1e-6)
    norms = signal * math.hypot(*out)
    if signal > 1e-30 and math.hypot(*out) > 1e-30:
        # scaled before multiplying, so that the tiniest values do not underflow
        dot = math.fsum(
            (r / signal) * (o / math.hypot(*out)) for r, o in zip(ref, out, strict=True)
        )
        assert found.cosine == pytest.approx(dot, abs=1e-9), norms


@given(st.lists(FINITE, min_size=0, max_size=40))
def test_equal_tensors_are_perfect(values: list[float]) -> None:
    """A tensor is at distance zero, infinite SNR and cosine one from itself, empty or zero too."""
    tensor = np.array(values, np.float64)
    found = measure(tensor, tensor.copy())
    assert (found.max_abs, found.max_rel, found.snr_db) == (0.0, 0.0, math.inf)
    assert found.cosine == pytest.approx(1.0)
    assert found.nonfinite_match


@given(PAIRS)
def test_histogram_counts_every_element_once(pairs: list[tuple[float, float]]) -> None:
    """Each element is exact or in the half decade that holds its error."""
    ref, out = np.array(pairs, np.float64).T
    found = error_histogram(ref, out)
    errors = [abs(o - r) for r, o in zip(ref, out, strict=True)]
    assert found.exact == errors.count(0.0)
    assert sum(found.counts) == len(errors) - errors.count(0.0)
    for index, count in enumerate(found.counts):
        half = found.first + index
        inside = sum(1 for e in errors if e > 0 and math.floor(2 * np.log10(e)) == half)
        if -40 < half < 19:
            assert count == inside


def test_a_zero_reference_makes_no_nonsense() -> None:
    """Against a zero reference any error is infinitely large relatively, and has no direction."""
    found = measure(np.zeros(3), np.array([0.0, 1.0, 0.0]))
    assert (found.max_rel, found.snr_db, found.cosine) == (math.inf, -math.inf, 0.0)


def test_the_largest_float64_values_do_not_overflow() -> None:
    """Squares are never formed of unscaled values; a difference that overflows is infinite."""
    huge = np.full(4, 1.7e308)
    assert measure(huge, huge).cosine == pytest.approx(1.0)
    assert measure(huge, -huge).max_abs == math.inf
    assert measure(huge, -huge).snr_db == -math.inf


@pytest.mark.parametrize(
    ("tolerance", "passed"),
    [
        (Tolerance(absolute=0.2), True),
        (Tolerance(absolute=0.05), False),
        (Tolerance(absolute=0.05, snr_db=39.0), True),
        (Tolerance(absolute=0.05, snr_db=41.0), False),
    ],
)
def test_absolute_error_or_snr_suffices(tolerance: Tolerance, passed: bool) -> None:
    """An error of 0.1 on 10 is 40 dB: within either bound it passes."""
    assert judge([10.0], [10.1], tolerance).passed is passed


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda v: v.name)
def test_garbage_fails_and_rounding_passes(verdict: Verdict) -> None:
    """Small outputs are judged by their own scale, and a good average hides no wrong element."""
    found = compare(
        verdict.eager, verdict.output, verdict.dtype, verdict.tolerance, case=0, name="y"
    )
    assert found.passed is verdict.passed, found.fact
    assert (found.passed_by is not None) is verdict.passed
    assert (found.fact == "") is verdict.passed


@pytest.mark.parametrize(
    ("model", "max_abs", "snr_db", "scale"),
    [
        ("mobilenet_v3_small", 3.9e-6, 113, 1),
        ("resnet50", 5.6e-5, 92, 1),
        ("efficientnet_b0", 4.2e-4, 97, 10),
        ("yolo_style", 1.1e-2, 106, 640),
    ],
)
def test_errors_that_good_models_have_pass(
    model: str, max_abs: float, snr_db: float, scale: float
) -> None:
    """Errors of this size were measured on float32 models: one element has it, all the SNR."""
    reference = np.random.default_rng(0).uniform(-scale, scale, 10_000)
    reference[0] = scale
    noise = np.random.default_rng(1).normal(size=10_000)
    noise *= 10 ** (-snr_db / 20) * np.linalg.norm(reference) / np.linalg.norm(noise)
    output = reference + noise.clip(-max_abs, max_abs)
    output[1] = reference[1] + max_abs
    found = judge(reference, output, DEFAULT_TOLERANCES[Dtype.FLOAT32])
    assert found.passed, (model, found.fact)


def test_an_output_says_what_it_passed_by() -> None:
    """Equal bits, the error's own bound, or the SNR."""
    tolerance = Tolerance(absolute=0.05, snr_db=39.0)
    assert judge([10.0], [10.0], tolerance).passed_by is Bound.BITS
    assert judge([10.0], [10.04], tolerance).passed_by is Bound.ABSOLUTE
    assert judge([10.0], [10.1], tolerance).passed_by is Bound.SNR
    assert judge([10.0], [11.0], tolerance).passed_by is None
    assert judge([np.nan], [np.nan], tolerance).passed_by is Bound.BITS


def test_an_element_that_a_good_average_hides_is_reported() -> None:
    """At 100 dB one element in a million errs by as much as the largest value."""
    reference = np.zeros(10**5, np.float32)
    reference[:10] = 1000.0
    found = judge(
        reference, reference + 0.2 * np.eye(1, 10**5)[0], Tolerance(absolute=1e-5, snr_db=80)
    )
    assert found.fact == (
        "max abs error 0.2 exceeds 1e-05 and, at SNR 84.0 dB, 0.1 as well; "
        "worst at [0]: eager 1000, artifact 1000.2"
    )


def test_a_failure_says_where_and_how_far() -> None:
    """The fact names the broken bounds, the worst element and both its values."""
    found = judge([[1.0, 2.0]], [[1.0, 3094.0]], Tolerance(absolute=1e-4, snr_db=80.0))
    assert found.fact == (
        "max abs error 3.09e+03 exceeds 0.0001 and SNR -62.8 dB is below 80 dB; "
        "worst at [0, 1]: eager 2, artifact 3094"
    )


@pytest.mark.parametrize(
    ("ref", "out", "match"),
    [
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.inf, 1.0], [np.inf, 1.0], True),
        ([np.inf, 1.0], [-np.inf, 1.0], False),
        ([np.nan, 1.0], [np.inf, 1.0], False),
        ([0.0, 1.0], [np.nan, 1.0], False),
        ([np.nan, 1.0], [0.0, 1.0], False),
    ],
)
def test_non_finite_elements_must_match(ref: list[float], out: list[float], match: bool) -> None:
    """NaN, +Inf and -Inf must be where eager has them, however wide the tolerance."""
    found = judge(ref, out, Tolerance(absolute=1e9))
    assert (found.nonfinite_match, found.passed) == (match, match)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_must_be_equal(left: int, right: int) -> None:
    """int64 is judged by its bits: neighbours that float64 cannot distinguish still differ."""
    assert judge([left], [right], None, Dtype.INT64).passed is (left == right)


def test_booleans_must_be_equal() -> None:
    """A flipped boolean is a divergence."""
    assert judge([True, False], [True, False], None, Dtype.BOOL).passed
    assert not judge([True, False], [True, True], None, Dtype.BOOL).passed


def test_shape_and_dtype_must_be_eagers() -> None:
    """An output of another shape or dtype is never compared by broadcasting."""
    shape = judge([[1.0, 2.0]], [1.0, 2.0], Tolerance(absolute=1.0))
    assert shape.fact == "output is float32 of shape [2], eager's is float32 of shape [1, 2]"
    other = compare(
        np.zeros(2, np.float32), np.zeros(2), Dtype.FLOAT32, Tolerance(absolute=1), case=0, name="y"
    )
    assert not other.passed


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_bfloat16_is_the_upper_half_of_float32(values: list[float]) -> None:
    """Widening 16 bits gives the float32 whose lower 16 bits are zero."""
    bits = np.array([struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values], np.uint16)
    expected = [struct.unpack("<f", struct.pack("<I", int(b) << 16))[0] for b in bits]
    assert np.array_equal(
        widen(bits, Dtype.BFLOAT16), np.array(expected, np.float64), equal_nan=True
    )


def test_same_bits_distinguishes_zeros_and_nans() -> None:
    """Bit equality is stricter than ==: -0 is not 0, and a NaN equals itself."""
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert same_bits(np.array([np.nan]), np.array([np.nan]))
    assert not same_bits(np.zeros((1, 2)), np.zeros((2, 1)))
