"""What Apple's compiler of Metal refuses is refused here, and what it takes is taken and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from emulated_device import EmulatedDevice, finding
from metal_language import INVALID, VALID

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"

# Each refusal's words, where they are ours; clang's own differ from version to version.
WORDS = {
    "global variable without constant": "g: is a variable outside of any function's memory",
    "static local variable": "k::n: is a variable outside of any function's memory",
    "recursion": "f: calls itself",
    "two kernels calling each other: a kernel called by a kernel": "k: calls g, which is a kernel",
    "position attributes of different widths": "vectors of different widths",
    "33 KB of threadgroup memory": "a group has 32768 bytes of threadgroup memory",
    "double": "double is not in Metal's language",
}


@pytest.mark.parametrize("kind", INVALID)
def test_what_apples_compiler_refuses_is_refused(emulated: EmulatedDevice, kind: str) -> None:
    """Each of 34 kinds of invalid Metal fails to compile, with a line that says why."""
    said = finding(lambda: emulated.compile(HEAD + INVALID[kind]))
    assert WORDS.get(kind, "") in said
    assert "line 3" in said or "kernels.metal" in said or kind in WORDS or "static ass" in said


def test_what_apples_compiler_takes_is_taken(emulated: EmulatedDevice) -> None:
    """All 14 kinds of valid Metal compile; each in a namespace of its own, under its number."""
    kernels = [
        f"namespace kind_{number} {{\n{source.replace('namespace c10', f'namespace c10_{number}')}".replace(
            "using namespace c10::", f"using namespace kind_{number}::c10_{number}::"
        )
        .replace('host_name("k")', f'host_name("k{number}")')
        .replace("kernel void k(", f'[[host_name("k{number}")]] kernel void k(')
        .replace("[[kernel, ", f'[[host_name("k{number}")]] [[kernel, ')
        + "\n}\n"
        for number, source in enumerate(VALID.values())
    ]
    shaders = emulated.compile(HEAD + "".join(kernels))
    said = finding(lambda: shaders.run("no kernel", [], [1], [1]))
    assert all(f"k{number}" in said for number in range(len(VALID)))


def computed(
    emulated: EmulatedDevice, body: str, arguments: Sequence[np.ndarray], count: int = 32
) -> np.ndarray:
    """What a kernel's body leaves in `out`; its inputs are `a` and `b`, its thread `i`."""
    kind = {np.dtype("f4"): "float", np.dtype("i4"): "int", np.dtype("u4"): "uint"}
    dtype = arguments[0].dtype
    text = ", ".join(f"device const {kind[dtype]}* {name}" for name in "ab"[: len(arguments)])
    shaders = emulated.compile(
        f"{HEAD}kernel void k(device {kind[dtype]}* out, {text},"
        f" uint i [[thread_position_in_grid]]) {{ {body} }}"
    )
    out = emulated.buffer(np.zeros(count, dtype))
    shaders.run("k", [out, *map(emulated.buffer, arguments)], [32], [32])
    return out.read(dtype)


def test_functions_of_integers(emulated: EmulatedDevice) -> None:
    """Counts, high halves, bit fields and saturated sums are arithmetic's."""
    random = np.random.default_rng(3)
    a, b = (random.integers(-(2**31), 2**31, 32).astype(np.int32) for _ in range(2))
    body = """
      out[i] = mulhi(a[i], b[i]); out[32 + i] = clz(a[i]); out[64 + i] = extract_bits(a[i], 5, 9);
      out[96 + i] = insert_bits(a[i], b[i], 4, 8); out[128 + i] = addsat(a[i], b[i]);
      out[160 + i] = hadd(a[i], b[i]); out[192 + i] = rotate(a[i], 7);
    """
    found = computed(emulated, body, [a, b], 7 * 32).reshape(7, 32)
    wide, other = a.astype(np.int64), b.astype(np.int64)
    bits = wide & 0xFFFFFFFF
    assert (found[0] == wide * other >> 32).all()
    assert (found[1] == [32 - int(x).bit_length() for x in bits]).all()
    field = wide >> 5 & 0x1FF
    assert (found[2] == np.where(field > 0xFF, field - 0x200, field)).all()
    inserted = (bits & ~0xFF0 | (other & 0xFF) << 4).astype(np.uint32).view(np.int32)
    assert (found[3] == inserted).all()
    assert (found[4] == np.clip(wide + other, -(2**31), 2**31 - 1)).all()
    assert (found[5] == (wide + other) >> 1).all()
    assert (found[6] == (bits << 7 | bits >> 25).astype(np.uint32).view(np.int32)).all()


def test_functions_of_floats_and_lanes(emulated: EmulatedDevice) -> None:
    """Mixtures, bounds and moves among lanes are as the specification has them."""
    a = np.linspace(-1, 2, 32, dtype=np.float32)
    body = """
      out[i] = saturate(a[i]); out[32 + i] = mix(a[i], 3.0f, 0.25f);
      out[64 + i] = simd_shuffle_up(a[i], 3); out[96 + i] = quad_sum(a[i]);
      out[128 + i] = smoothstep(0.0f, 1.0f, a[i]); threadgroup float t[32] = {0};
      threadgroup_barrier(mem_flags::mem_threadgroup);
      out[160 + i] = t[31 - i] + exp10(a[i]);
    """
    found = computed(emulated, body, [a], 6 * 32).reshape(6, 32)
    share = np.clip(a, 0, 1)
    assert (found[0] == share).all()
    np.testing.assert_allclose(found[1], a + (3 - a) * 0.25, rtol=1e-6)
    assert (found[2][3:] == a[:-3]).all()
    np.testing.assert_allclose(found[3], np.repeat(a.reshape(8, 4).sum(1), 4), atol=1e-6)
    np.testing.assert_allclose(found[4], share * share * (3 - 2 * share), atol=1e-6)
    np.testing.assert_allclose(found[5], 10.0**a, rtol=1e-6)


def test_structs_are_copied_between_address_spaces(emulated: EmulatedDevice) -> None:
    """A struct goes to threadgroup memory and back; a constant one into a member."""
    shaders = emulated.compile(
        HEAD
        + """
        struct Pair { float x; float y; };
        struct Held { Pair pair; long more; };
        kernel void k(device float* out, constant Pair& in, uint i [[thread_position_in_grid]]) {
          threadgroup Pair held[4];
          held[i] = in;
          threadgroup_barrier(mem_flags::mem_threadgroup);
          const Pair mine = held[3 - i];
          const Held wrapped = {in, 1};
          out[i] = mine.x + wrapped.pair.y;
        }"""
    )
    out = emulated.buffer(16)
    pair = emulated.buffer(np.array([1.5, 2.5], np.float32))
    shaders.run("k", [out, pair], [4], [4])
    assert out.read(np.float32).tolist() == [4.0] * 4
