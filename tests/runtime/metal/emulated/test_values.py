"""Shaders compute on the emulated device what Metal's specification and eager PyTorch say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._cpp_embed_headers import _embed_headers

if TYPE_CHECKING:
    from emulated_device import EmulatedDevice, Library
    from numpy.typing import NDArray

F32 = np.float32


def random(*shape: int) -> NDArray[np.float32]:
    """Normal values, always the same ones."""
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def computed(
    kernels: Library, name: str, inputs: NDArray[Any], out: tuple[int, Any]
) -> NDArray[Any]:
    """What a kernel of a thread a row makes of its input; out is elements and dtype."""
    device = kernels.device
    result = device.buffer(out[0] * np.dtype(out[1]).itemsize)
    kernels.run(name, [result, device.buffer(inputs)], [len(inputs)], [64])
    return result.read(out[1])


def c10(*names: str) -> str:
    """Torch's headers for Metal, flattened as Inductor flattens them."""
    lines = [f"#include <c10/metal/{name}.h>" for name in names]
    return _embed_headers(lines, [Path(torch.__file__).parent / "include"], set())


@given(
    grid=st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 4)),
    group=st.tuples(st.integers(1, 8), st.integers(1, 4), st.integers(1, 3)),
)
def test_positions(
    kernels: Library, grid: tuple[int, int, int], group: tuple[int, int, int]
) -> None:
    """Each thread of a grid runs once and knows its place; the last groups may be smaller."""
    out = kernels.device.buffer(8 * 4 * int(np.prod(grid)))
    kernels.run("positions", [None, out], grid, group)
    found = out.read(np.uint32).reshape(*reversed(grid), 8)

    def code(xyz: Any) -> int:
        return int(xyz[0] + 100 * xyz[1] + 10000 * xyz[2])

    nominal = np.minimum(group, grid)
    for place in np.ndindex(*grid):
        at = place // nominal
        inside = place - at * nominal
        size = np.minimum(nominal, np.array(grid) - at * nominal)
        index = int(inside[0] + size[0] * (inside[1] + size[1] * inside[2]))
        expected = [
            code(inside),
            code(at),
            code(size),
            code(nominal),
            code(-(-np.array(grid) // nominal)),
            index,
            index % 32 + 100 * (index // 32),
            32 + 100 * -(-int(np.prod(size)) // 32),
        ]
        assert found[place[2], place[1], place[0]].tolist() == expected


def test_literals_are_floats(kernels: Library) -> None:
    """Metal has no double: 0.333333333333333333 is the float nearest to it."""
    values = random(64)
    expected = values * F32(1 / 3) + F32(1e-9)
    assert (computed(kernels, "literal", values, (64, F32)) == expected).all()


def test_half_rounds_after_every_operation(kernels: Library) -> None:
    """Arithmetic of half is IEEE half arithmetic, as numpy does it, without wider intermediates."""
    x = random(64).astype(np.float16)
    expected = x * x - x / np.float16(3) + np.float16(0.1)
    assert (computed(kernels, "half_arithmetic", x, (64, np.float16)) == expected).all()


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float", torch.float32), ("half", torch.float16), ("bfloat", torch.bfloat16)],
)
def test_instantiated_templates(
    kernels: Library, emulated: EmulatedDevice, name: str, dtype: torch.dtype
) -> None:
    """A template's instantiations carry their host names; conversions round to nearest even."""
    values = torch.from_numpy(random(256)).to(dtype)
    integers = {4: torch.int32, 2: torch.int16}[dtype.itemsize]
    by = np.array([1.7, 0], F32).view(np.int64)[0]
    out = emulated.buffer(values.nbytes)
    operand = emulated.buffer(values.view(integers).numpy())
    kernels.run(f"scale_{name}", [out, operand, int(by)], [256], [100])
    found = torch.from_numpy(out.read(integers.__str__().removeprefix("torch."))).view(dtype)
    assert torch.equal(found, (values.float() * torch.tensor(F32(1.7))).to(dtype))


def test_barriers(kernels: Library) -> None:
    """Threads of a group exchange values through threadgroup memory."""
    values = random(64 * 50)
    expected = values.reshape(50, 64)[:, ::-1].ravel()
    assert (computed(kernels, "reverse_groups", values, (values.size, F32)) == expected).all()


def test_simd_folds(kernels: Library) -> None:
    """Reductions and prefix sums run over 32 lanes, in the order of lanes."""
    x = random(96)
    found = computed(kernels, "simd_folds", x, (8 * 96, F32)).reshape(3, 32, 8)
    lanes = x.reshape(3, 32)
    for group in range(3):
        of = lanes[group]
        everyone = [of.sum(), of.prod(), of.max(), of.min()]
        np.testing.assert_allclose(found[group][:, :4], np.tile(everyone, (32, 1)), rtol=1e-5)
        prefix = np.cumsum(of, dtype=F32)
        np.testing.assert_allclose(found[group][:, 4], prefix, rtol=1e-6)
        np.testing.assert_allclose(found[group][1:, 5], prefix[:-1], rtol=1e-6)
        assert found[group][0, 5] == 0
        assert (found[group][:, 6] == (of > 1.5).any() + 2 * (of > 0).all()).all()
        assert (found[group][:, 7] == (of > 1).sum()).all()


def test_simd_moves(kernels: Library) -> None:
    """Lanes read other lanes' values; what comes from beyond the group is the filling."""
    x = np.arange(100, 132, dtype=np.int32)
    found = computed(kernels, "simd_moves", x, (8 * 32, np.int32)).reshape(32, 8)
    assert (found[:, 0] == x[5]).all()
    assert (found[:, 1] == x[::-1]).all()
    assert (found[:, 2] == x[np.arange(32) ^ 3]).all()
    assert found[:, 3].tolist() == [*x[2:], -7, -7]
    assert found[:, 4].tolist() == [-7, -7, *x[:-2]]
    assert (found[:, 5] == np.roll(x, -1)).all()
    assert (found[:, 6] == x[0]).all()
    assert (found[:, 7] == np.bitwise_xor.reduce(x)).all()


@pytest.mark.parametrize("threads", [32, 50])
def test_simd_operations_of_some_threads(
    kernels: Library, emulated: EmulatedDevice, threads: int
) -> None:
    """An operation in a branch is one of the lanes that took it; a last group may be partial."""
    out = emulated.buffer(4 * threads)
    kernels.run("simd_some", [out, 20], [threads], [threads])
    lanes = np.arange(threads) % 32
    count = np.where(np.arange(threads) < 32, 20, threads - 32)
    assert (out.read(np.int32) == np.where(lanes < 20, count, -1)).all()


def test_atomics(kernels: Library, emulated: EmulatedDevice) -> None:
    """Atomic sums lose nothing, and float ones are the same at every run."""
    values = random(100_000)
    totals = set()
    for _ in range(2):
        counts, total = emulated.buffer(np.zeros(4, np.uint32)), emulated.buffer(np.zeros(1, F32))
        kernels.run("count_atomically", [counts, total, emulated.buffer(values)], [100_000], [256])
        assert (counts.read(np.uint32) == 25_000).all()
        totals.add(float(total.read(F32)[0]))
    assert totals == {float(np.cumsum(values, dtype=F32)[-1])}


def test_threadgroup_atomics(kernels: Library, emulated: EmulatedDevice) -> None:
    """Atomic variables of a group count its threads, each group anew."""
    out = emulated.buffer(4 * 10)
    kernels.run("count_in_group", [out], [640], [64])
    assert (out.read(np.uint32) == sum(range(64))).all()


def test_vectors(kernels: Library) -> None:
    """Vectors of three are stored as four; swizzles, constructors and products are Metal's."""
    values = random(8, 4)
    found = computed(kernels, "vectors", values, (8 * 4, F32)).reshape(8, 4)
    v = values[:, :3]
    expected = 2 * np.stack([v[:, 1], v[:, 0], v[:, 2], np.ones(8, F32)], 1)
    expected[:, 0] += (v * v).sum(1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# As Inductor wrote it for Linear -> GELU -> LayerNorm.
FUSED = """
    [[max_total_threads_per_threadgroup(32)]]
    kernel void generated_kernel(
        device float* out_ptr2,
        constant float* in_ptr0,
        constant float* in_ptr1,
        constant float* in_ptr2,
        constant float* in_ptr3,
        uint2 thread_pos [[thread_position_in_grid]],
        uint2 group_pos [[thread_position_in_threadgroup]]
    ) {
        auto xindex = thread_pos.x;
        auto r0_index = thread_pos.y;
        int r0_1 = r0_index;
        int x0 = xindex;
        threadgroup float tmp_acc_0[32];
        auto tmp0 = in_ptr0[r0_1];
        auto tmp1 = in_ptr1[r0_1 + 32*x0];
        auto tmp2 = tmp0 + tmp1;
        auto tmp3 = 0.5;
        auto tmp4 = tmp2 * tmp3;
        auto tmp5 = 0.7071067811865476;
        auto tmp6 = tmp2 * tmp5;
        auto tmp7 = c10::metal::erf(tmp6);
        auto tmp8 = 1.0;
        auto tmp9 = tmp7 + tmp8;
        auto tmp10 = tmp4 * tmp9;
        tmp_acc_0[r0_index * 1] = tmp10;
        auto tmp11 = c10::metal::threadgroup_welford_reduce(tmp_acc_0, 32);
        auto tmp19 = in_ptr2[r0_1];
        auto tmp21 = in_ptr3[r0_1];
        auto tmp12 = tmp10 - tmp11.x;
        auto tmp13 = 32.0;
        auto tmp14 = tmp11.y / tmp13;
        auto tmp15 = 1e-05;
        auto tmp16 = tmp14 + tmp15;
        auto tmp17 = metal::precise::rsqrt(tmp16);
        auto tmp18 = tmp12 * tmp17;
        auto tmp20 = tmp18 * tmp19;
        auto tmp22 = tmp20 + tmp21;
        out_ptr2[r0_1 + 32*x0] = static_cast<float>(tmp22);
    }
"""

# Reductions of torch's header, over groups larger than a SIMD group.
REDUCTIONS = """
kernel void reductions(device float* out, constant float* in, constant long* whole,
                       device long* counts, uint2 at [[thread_position_in_grid]]) {
  const uint i = at.y, size = 100;
  threadgroup float sums[4], products[4], most[4], least[4], values[4];
  threadgroup long places[4], wholes[4];
  const float x = in[i + size * at.x];
  const float sum = c10::metal::threadgroup_sum(sums, x, i, size);
  const float product = c10::metal::threadgroup_prod(products, x, i, size);
  const float maximum = c10::metal::threadgroup_max(most, x, i, size);
  const float minimum = c10::metal::threadgroup_min(least, x, i, size);
  const long place = c10::metal::threadgroup_argmax(values, places, x, long(i), i, size);
  const long total = c10::metal::threadgroup_sum(wholes, whole[i + size * at.x], i, size);
  if (i != 0) return;
  out[4 * at.x + 0] = sum;
  out[4 * at.x + 1] = product;
  out[4 * at.x + 2] = maximum;
  out[4 * at.x + 3] = minimum;
  counts[2 * at.x + 0] = place;
  counts[2 * at.x + 1] = total;
}
"""

# As Inductor writes a softmax: thread 0 alone stores between two reductions.
SOFTMAX = """
kernel void softmax(device float* maxima, device float* sums, constant float* in,
                    uint2 at [[thread_position_in_grid]]) {
  threadgroup float most[32];
  threadgroup float totals[32];
  const long row = at.x;
  const long place = at.y;
  const float x = in[place + 16 * row];
  const float maximum = c10::metal::threadgroup_max(most, x, place * 1, 16);
  if (place == 0) maxima[row] = maximum;
  const float power = metal::precise::exp(x - maximum);
  const float sum = c10::metal::threadgroup_sum(totals, power, place * 1, 16);
  if (place == 0) sums[row] = sum;
}
"""

# name -> eager, over positive values
SPECIAL = {
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
    "expm1f": torch.expm1,
    "i0": torch.special.i0,
    "i0e": torch.special.i0e,
    "i1": torch.special.i1,
    "i1e": torch.special.i1e,
    "log_gamma": torch.lgamma,
    "digamma": torch.digamma,
    "log1p": torch.log1p,
    "sinc": torch.sinc,
    "bessel_j0_forward": torch.special.bessel_j0,
    "modified_bessel_k1_forward": torch.special.modified_bessel_k1,
    "spherical_bessel_j0": torch.special.spherical_bessel_j0,
}


@pytest.fixture(scope="module")
def lowered(emulated: EmulatedDevice) -> Library:
    """Kernels that use torch's own headers, all of them in one text."""
    calls = "\n".join(
        f"  out[{i} + {len(SPECIAL)} * t] = c10::metal::{name}(x);"
        for i, name in enumerate(SPECIAL)
    )
    special = (
        "kernel void special(device float* out, constant float* in,"
        " uint t [[thread_position_in_grid]]) {\n  const float x = in[t];\n" + calls + "\n}\n"
    )
    headers = c10("utils", "special_math", "reduction_utils", "indexing", "atomic", "random")
    return emulated.compile(headers + FUSED + REDUCTIONS + SOFTMAX + special)


def test_fused_kernel_of_a_lowered_model(lowered: Library, emulated: EmulatedDevice) -> None:
    """Inductor's fused GELU and LayerNorm, with its barriers, is within rounding of eager."""
    x, bias, weight, shift = random(40, 32), random(32), random(32)[::-1], random(32) * 2
    out = emulated.buffer(x.nbytes)
    operands = [out, *(emulated.buffer(np.array(v)) for v in (bias, x, weight, shift))]
    lowered.run("generated_kernel", operands, [40, 32], [1, 32])
    eager = torch.nn.functional.layer_norm(
        torch.nn.functional.gelu(torch.from_numpy(x + bias)),
        [32],
        torch.from_numpy(weight.copy()),
        torch.from_numpy(shift),
    )
    np.testing.assert_allclose(out.read(F32).reshape(40, 32), eager.numpy(), atol=2e-6)


def test_what_one_thread_stores_between_reductions(
    lowered: Library, emulated: EmulatedDevice
) -> None:
    """The threads of a SIMD group meet in the second reduction, whichever stored before it."""
    x = torch.from_numpy(random(5, 16))
    maxima, sums = emulated.buffer(5 * 4), emulated.buffer(5 * 4)
    lowered.run("softmax", [maxima, sums, emulated.buffer(x.numpy())], [5, 16], [1, 16])
    most = x.amax(1, keepdim=True)
    assert (maxima.read(F32) == most[:, 0].numpy()).all()
    np.testing.assert_allclose(sums.read(F32), (x - most).exp().sum(1).numpy(), rtol=1e-6)


def test_reductions_of_torch(lowered: Library, emulated: EmulatedDevice) -> None:
    """Torch's reductions agree with eager over groups that are no multiple of a SIMD group."""
    x = 1 + random(6, 100) / 50
    whole = np.random.default_rng(1).integers(-(2**40), 2**40, (6, 100))
    out, counts = emulated.buffer(6 * 16), emulated.buffer(6 * 16)
    lowered.run(
        "reductions", [out, emulated.buffer(x), emulated.buffer(whole), counts], [6, 100], [1, 100]
    )
    t = torch.from_numpy(x)
    expected = torch.stack([t.sum(1), t.prod(1), t.amax(1), t.amin(1)], 1)
    np.testing.assert_allclose(out.read(F32).reshape(6, 4), expected.numpy(), rtol=1e-5)
    places = np.stack([x.argmax(1), whole.sum(1)], 1)
    assert (counts.read(np.int64).reshape(6, 2) == places).all()


def test_special_functions(lowered: Library) -> None:
    """Each special function of torch's header agrees with eager over (0, 1)."""
    x = np.linspace(0.01, 0.99, 64, dtype=F32)
    found = computed(lowered, "special", x, (64 * len(SPECIAL), F32)).reshape(64, -1)
    for i, (name, eager) in enumerate(SPECIAL.items()):
        expected = eager(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(found[:, i], expected, rtol=3e-5, atol=1e-6, err_msg=name)


def test_matrices_of_a_simd_group(kernels: Library) -> None:
    """Products, origins, rows of any length, transposing and diagonals, as numpy has them."""
    given = random(3, 8, 8)
    device = kernels.device
    out = device.buffer(3 * 64 * 4)
    kernels.run("matrices", [out, device.buffer(given)], [32], [32])
    product, transposed, diagonal = out.read(F32).reshape(3, 8, 8)
    expected = given[0].astype(np.float64) @ given[1] + given[2]
    np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-5)
    assert (transposed == given[1].T).all()
    assert (diagonal == 3 * np.eye(8, dtype=F32)).all()


def test_half_matrices_round_once(kernels: Library) -> None:
    """A product of half matrices is summed in single precision."""
    given = random(8, 16).astype(np.float16)
    device = kernels.device
    out = device.buffer(64 * 2)
    kernels.run("half_matrices", [out, device.buffer(given)], [32], [32])
    expected = given[:, :8].astype(np.float64) @ given[:, 8:].astype(np.float64)
    actual = out.read(np.float16).reshape(8, 8).astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=2**-11, atol=1e-6)
