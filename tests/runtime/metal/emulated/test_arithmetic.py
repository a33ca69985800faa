"""Where Apple's GPUs differ from x86's processors, the emulated device computes as they do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from emulated_device import EmulatedDevice, Library, finding

from menagerie.emulator import Mode, running

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOURCE = """
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void convert(device T* out [[buffer(0)]], device const float* in [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  out[i] = static_cast<T>(in[i]);
}
#define CONVERT(T) template [[host_name("to_" #T)]] [[kernel]] decltype(convert<T>) convert<T>;
CONVERT(char) CONVERT(uchar) CONVERT(short) CONVERT(ushort)
CONVERT(int) CONVERT(uint) CONVERT(long) CONVERT(ulong)

kernel void flush(device float* out, device const float* in, device bfloat* narrow,
                  device half* halves, uint i [[thread_position_in_grid]]) {
  out[4 * i] = in[i] * 1.5f;
  out[4 * i + 1] = log(in[i]);
  out[4 * i + 2] = in[i] == 0.0f;
  out[4 * i + 3] = sqrt(in[i]);
  narrow[i] = narrow[i] * bfloat(1.5f);
  halves[i] = halves[i] * half(2.0f);
}

kernel void turns(device float* out, device const float* in, uint i [[thread_position_in_grid]]) {
  out[3 * i] = sinpi(in[i]);
  out[3 * i + 1] = cospi(in[i]);
  out[3 * i + 2] = tanpi(in[i]);
}

kernel void contract(device float* out, device const float* in,
                     uint i [[thread_position_in_grid]]) {
  out[i] = in[i] * in[i] - 1.0f;
}

kernel void total(device atomic<float>* out, device const float* in,
                  uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(out, in[i], memory_order_relaxed);
}
"""


@pytest.fixture(scope="module")
def shaders(emulated: EmulatedDevice) -> Library:
    """The kernels above."""
    return emulated.compile(SOURCE)


def computed(shaders: Library, name: str, values: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
    """What a kernel of a thread a value makes of them, over what `out` held."""
    device = shaders.device
    result = device.buffer(out)
    shaders.run(name, [result, device.buffer(values)], [len(values)], [64])
    return result.read(out.dtype)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("char", np.int8), ("uchar", np.uint8), ("short", np.int16), ("ushort", np.uint16),
        ("int", np.int32), ("uint", np.uint32), ("long", np.int64), ("ulong", np.uint64),
    ],
)  # fmt: skip
def test_a_float_becomes_the_nearest_integer_of_its_type(
    shaders: Library, name: str, dtype: type[np.integer[Any]]
) -> None:
    """Beyond an integer's ends its end is taken, and zero for NaN; towards zero between."""
    values = [-26.0, 306.0, 128.0, -129.5, -1.0, 3.99, -3.99, 7e4, -7e4, 5e9, -5e9, 1e30, -1e30]
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    expected = [min(max(int(np.float32(x)), low), high) for x in values]
    given = np.array([*values, np.inf, -np.inf, np.nan], np.float32)
    found = computed(shaders, f"to_{name}", given, np.zeros(len(given), dtype))
    assert found.tolist() == [*expected, high, low, 0]


def flushed(shaders: Library) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """What 1e-42 and a bfloat16 and a float16 subnormal become."""
    device = shaders.device
    out, narrow = device.buffer(16), device.buffer(np.array([3], np.uint16))
    half = device.buffer(np.array([3 * 2.0**-24], np.float16))
    tiny = device.buffer(np.array([1e-42], np.float32))
    shaders.run("flush", [out, tiny, narrow, half], [1], [1])
    return out.read(np.float32), narrow.read(np.uint16), half.read(np.float16)


def test_subnormals_are_zero(shaders: Library) -> None:
    """Of float32 and bfloat16; float16 keeps its own."""
    found, narrow, half = flushed(shaders)
    assert found.tolist() == [0.0, -np.inf, 1.0, 0.0]
    assert narrow.tolist() == [0]
    assert half.tolist() == [6 * 2.0**-24]


def test_turns_are_exact(shaders: Library) -> None:
    """Sines of multiples of pi are exact however large the argument."""
    values = np.array([0.5, 1e6 + 0.5, -0.5, 1e6, 0.25, 1e5 + 0.25, 2.0, 1.0], np.float32)
    found = computed(shaders, "turns", values, np.zeros(24, np.float32)).reshape(8, 3)
    assert found[:4, 0].tolist() == [1.0, 1.0, -1.0, 0.0]
    assert found[[3, 6, 7], 1].tolist() == [1.0, 1.0, -1.0]
    np.testing.assert_allclose(found[4:6], [[0.5**0.5, 0.5**0.5, 1.0]] * 2, rtol=2e-7)


def test_other_devices_subnormals_contraction_and_order(shaders: Library) -> None:
    """The other mode keeps subnormals, rounds once in a statement and adds from the last on."""
    x = np.array([1 + 2.0**-12], np.float32)
    terms = np.float32(1) / np.arange(1, 4097, dtype=np.float32)
    usual = [computed(shaders, "contract", x, np.zeros(1, np.float32))[0]]
    usual += [computed(shaders, "total", terms, np.zeros(1, np.float32))[0]]
    with running(Mode.OTHER):
        found, _, _ = flushed(shaders)
        other = [computed(shaders, "contract", x, np.zeros(1, np.float32))[0]]
        other += [computed(shaders, "total", terms, np.zeros(1, np.float32))[0]]
    wide = np.float64(x[0])
    assert usual[0] == np.float32(x[0] * x[0]) - np.float32(1)
    assert other[0] == np.float32(wide * wide - 1) != usual[0]
    assert usual[1] == np.cumsum(terms, dtype=np.float32)[-1]
    blocks = terms.reshape(-1, 64)[::-1].ravel()
    assert other[1] == np.cumsum(blocks, dtype=np.float32)[-1] != usual[1]
    assert found[0] == np.float32(1.5) * np.float32(1e-42)
    np.testing.assert_allclose(found[1], np.log(np.float64(np.float32(1e-42))), rtol=1e-6)


def test_plain_runs_have_the_bits_of_checked_ones(kernels: Library) -> None:
    """Without the checks the same arithmetic is done; the checks are back behind them."""
    values = np.random.default_rng(5).standard_normal(64 * 40).astype(np.float32)
    names = ("reverse_groups", "literal")
    checked = [computed(kernels, name, values, np.zeros_like(values)) for name in names]
    with running(Mode.PLAIN):
        plain = [computed(kernels, name, values, np.zeros_like(values)) for name in names]
    assert all((a == b).all() for a, b in zip(checked, plain, strict=True))
    out = kernels.device.buffer(np.zeros(64, np.uint8))
    assert "out of bounds" in finding(lambda: kernels.run("write_at", [out, 16], [32], [32]))
