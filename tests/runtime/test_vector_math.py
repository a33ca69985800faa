"""The elementary functions of generated code against the same in double precision."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from math import lgamma
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from menagerie.library import library

if TYPE_CHECKING:
    from collections.abc import Callable

Floats = NDArray[np.float32]

# ctypes passes no vectors: this calls a function of eight lanes over a whole array.
CALLER = """
#include <immintrin.h>
void map1(__m256 (*f)(__m256), const float* x, float* out, long n) {
  for (long i = 0; i < n; i += 8) _mm256_storeu_ps(out + i, f(_mm256_loadu_ps(x + i)));
}
void map2(__m256 (*f)(__m256, __m256), const float* x, const float* y, float* out, long n) {
  for (long i = 0; i < n; i += 8)
    _mm256_storeu_ps(out + i, f(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
}
"""


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The compiled caller."""
    folder = tmp_path_factory.mktemp("caller")
    source, target = folder / "caller.c", folder / "caller.so"
    source.write_text(CALLER)
    compiler = shutil.which("cc") or "gcc"
    subprocess.run(
        [compiler, "-O1", "-mavx2", "-shared", "-fPIC", str(source), "-o", str(target)], check=True
    )
    return ctypes.CDLL(str(target))


def apply(caller: ctypes.CDLL, name: str, *inputs: Floats) -> Floats:
    """The named function of arrays whose length is a multiple of eight."""
    function = ctypes.cast(getattr(library(), name), ctypes.c_void_p)
    out = np.empty_like(inputs[0])
    arrays = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs, out)]
    getattr(caller, f"map{len(inputs)}")(function, *arrays, ctypes.c_long(out.size))
    return out


def ulps(actual: Floats, exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance in units of the last place of the exact value as a float; 0 where both are alike."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        distance = np.abs(actual.astype(np.float64) - exact) / unit
    alike = (actual == rounded) | (np.isnan(actual) & np.isnan(exact))
    return np.where(alike, 0.0, distance)


def spread(low: float, high: float, count: int = 1 << 16) -> Floats:
    """Evenly spaced and random values of a range, with its ends."""
    random = np.random.default_rng(0).uniform(low, high, count)
    return np.concatenate([np.linspace(low, high, count), random]).astype(np.float32)


def test_exp_is_within_one_ulp(caller: ctypes.CDLL) -> None:
    """exp, by our own polynomial, is within 1 ULP where its result is a normal number."""
    x = np.concatenate([spread(-87.0, 88.72), spread(-1e-3, 1e-3), spread(-1.0, 1.0)])
    assert ulps(apply(caller, "Sleef_expf8_u10", x), np.exp(x.astype(np.float64))).max() <= 1.0


def test_exp_underflows_gradually(caller: ctypes.CDLL) -> None:
    """Below the normal range exp loses no more than its last place."""
    x = spread(-104.0, -87.0)
    assert ulps(apply(caller, "Sleef_expf8_u10", x), np.exp(x.astype(np.float64))).max() <= 1.0


def test_exp_of_special_values(caller: ctypes.CDLL) -> None:
    """Infinities, NaN, both zeros, overflow and underflow end where IEEE says."""
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 200.0, -200.0, 88.73], np.float32)
    expected = np.array([np.inf, 0.0, np.nan, 1.0, 1.0, np.inf, 0.0, np.inf], np.float32)
    np.testing.assert_array_equal(apply(caller, "Sleef_expf8_u10", x), expected)


UNARY: list[tuple[str, Callable[[Any], Any], float, float]] = [
    ("acos", np.arccos, -1, 1),
    ("acosh", np.arccosh, 1, 1e6),
    ("asin", np.arcsin, -1, 1),
    ("asinh", np.arcsinh, -1e6, 1e6),
    ("atan", np.arctan, -1e3, 1e3),
    ("atanh", np.arctanh, -0.999, 0.999),
    ("cos", np.cos, -100, 100),
    ("cosh", np.cosh, -80, 80),
    ("exp2", np.exp2, -120, 120),
    ("expm1", np.expm1, -80, 80),
    ("log", np.log, 1e-30, 1e30),
    ("log10", np.log10, 1e-30, 1e30),
    ("log1p", np.log1p, -0.999, 1e6),
    ("log2", np.log2, 1e-30, 1e30),
    ("sin", np.sin, -100, 100),
    ("sinh", np.sinh, -80, 80),
    ("tan", np.tan, -1.5, 1.5),
    ("tanh", np.tanh, -20, 20),
    ("lgamma", np.vectorize(lgamma, otypes=[np.float64]), 3, 1e4),
]


@pytest.mark.parametrize(("name", "exact", "low", "high"), UNARY)
def test_unary_is_within_two_ulps(
    caller: ctypes.CDLL, name: str, exact: Callable[[Any], Any], low: float, high: float
) -> None:
    """Every other function of one argument is as good as the C library's."""
    x = spread(low, high, 1 << 12)
    assert ulps(apply(caller, f"Sleef_{name}f8_u10", x), exact(x.astype(np.float64))).max() <= 2.0


BINARY: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("atan2f8_u10", np.arctan2),
    ("copysignf8", np.copysign),
    ("fmodf8", np.fmod),
    ("hypotf8_u05", np.hypot),
]


@pytest.mark.parametrize(("name", "exact"), BINARY)
def test_binary_is_within_two_ulps(
    caller: ctypes.CDLL, name: str, exact: Callable[[Any, Any], Any]
) -> None:
    """Functions of two arguments take them in the C library's order."""
    x, y = spread(-30, 30, 1 << 10), spread(-20, 40, 1 << 10)[::-1].copy()
    with np.errstate(invalid="ignore"):
        expected = exact(x.astype(np.float64), y.astype(np.float64))
    assert ulps(apply(caller, f"Sleef_{name}", x, y), expected).max() <= 2.0


def test_pow_is_within_two_ulps(caller: ctypes.CDLL) -> None:
    """Pow takes the base first."""
    x, y = spread(0.01, 30, 1 << 10), spread(-20, 20, 1 << 10)[::-1].copy()
    expected = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulps(apply(caller, "Sleef_powf8_u10", x, y), expected).max() <= 2.0
