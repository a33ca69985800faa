"""Figures as words: exact strings for the values that reports are made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from menagerie import figures

NB = "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}"
TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "exact"),
        (2.1e-6, f"2.1{NB}10⁻⁶"),
        (1e-4, "10⁻⁴"),
        (0.031, "0.031"),
        (8.1, "8.1"),
        (3094.0, "3094"),
        (1.5e7, f"1.5{NB}10⁷"),
        (math.inf, "∞"),
        (math.nan, "NaN"),
    ],
)
def test_errors(value: float, expected: str) -> None:
    """An error is exact, a plain number, or a power of ten."""
    assert figures.error(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(118.24, "118.2 dB"), (math.inf, "bit-equal"), (-math.inf, "\N{MINUS SIGN}∞ dB")],
)
def test_decibels(value: float, expected: str) -> None:
    """Infinite SNR means equal bits; minus infinity does not."""
    assert figures.decibels(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0421, "42.1 µs"), (1.9, "1.90 ms"), (124.2, "124 ms"), (2472.0, "2.47 s")],
)
def test_milliseconds(value: float, expected: str) -> None:
    """The unit follows the value; three digits stay."""
    assert figures.milliseconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0 s"), (0.42, "0.42 s"), (31.4, "31 s"), (59.7, "1 min 00 s"), (125.0, "2 min 05 s")],
)
def test_seconds(value: float, expected: str) -> None:
    """A minute is never written as 60 s."""
    assert figures.seconds(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (46_830_888, "46.8 MB"), (10**13, "10000 GB")],
)
def test_sizes(value: int, expected: str) -> None:
    """Units are decimal: 1 kB is 1000 bytes."""
    assert figures.size(value) == expected


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.5, f"2.00{TIMES} faster than eager"),
        (1.12, f"1.12{TIMES} slower than eager"),
        (1.02, "as fast as eager"),
        (None, "not compared"),
    ],
)
def test_speed(ratio: float | None, expected: str) -> None:
    """The factor is always above one; the word says whose it is."""
    assert figures.speed(ratio) == expected


def test_moment() -> None:
    """A time is shown in UTC; what is no time stays as it is."""
    assert figures.moment("2025-03-01T14:00:00+02:00") == "2025-03-01 12:00 UTC"
    assert figures.moment("yesterday") == "yesterday"


@given(st.floats(min_value=0))
def test_no_error_is_unprintable(value: float) -> None:
    """Every error that can be measured has a short text."""
    assert 0 < len(figures.error(value)) < 16
    assert figures.decibels(value)


def test_only_none_and_the_whole_are_written_so() -> None:
    """One decimal otherwise, which rounds to neither end."""
    shares = (0, 1e-5, 0.386666667, 0.38, 0.99999, 1)
    written = ["0 %", "<0.1 %", "38.7 %", "38.0 %", ">99.9 %", "100 %"]
    assert [figures.percent(share).replace("\xa0", " ") for share in shares] == written
