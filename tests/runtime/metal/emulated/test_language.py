"""What Apple's compiler of Metal refuses is refused here, and what it takes is taken and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from emulated_device import EmulatedDevice, finding
from metal_language import FORMS, INVALID, VALID

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"

# Each refusal's words, where they are ours; clang's own differ from version to version.
WORDS = {
    "global variable without constant": "g: a variable of the program lies in constant memory",
    "static local variable": "n: a variable that is static lies in constant memory",
    "recursion": "f: calls itself",
    "two kernels calling each other: a kernel called by a kernel": "k: calls g, which is a kernel",
    "position attributes of different widths": "vectors of different widths",
    "33 KB of threadgroup memory": "a group has 32768 bytes of threadgroup memory",
    "double": "double is not in Metal's language",
}


@pytest.mark.parametrize("kind", FORMS)
def test_other_forms_are_refused(emulated: EmulatedDevice, kind: str) -> None:
    """What is refused in one form is so in others: declarators, casts, templates, attributes."""
    finding(lambda: emulated.compile(HEAD + FORMS[kind]))


@pytest.mark.parametrize("kind", INVALID)
def test_what_apples_compiler_refuses_is_refused(emulated: EmulatedDevice, kind: str) -> None:
    """Each of 34 kinds of invalid Metal fails to compile, with a line that says why."""
    said = finding(lambda: emulated.compile(HEAD + INVALID[kind]))
    assert WORDS.get(kind, "") in said
    assert "line 3" in said or "kernels.metal" in said or kind in WORDS or "static ass" in said


def test_what_apples_compiler_takes_is_taken(emulated: EmulatedDevice) -> None:
    """All 23 kinds of valid Metal compile; each in a namespace of its own, under its number."""
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


FLOATS = ["float", "float3", "half", "half4", "bfloat", "bfloat2"]
WHOLES = ["char", "ushort", "int", "ulong", "int4", "uchar3"]
ONE_FLOAT = """acos acosh asin asinh atan atanh ceil cos cosh cospi exp exp10 exp2 fabs abs floor fract
    log log10 log2 rint round rsqrt saturate sign sin sinh sinpi sqrt tan tanh tanpi trunc"""
TWO_FLOATS = "atan2 copysign divide fdim fmax fmin fmod pow powr step max min nextafter"
THREE_FLOATS = "fma mix smoothstep fmax3 fmin3 fmedian3 max3 min3 median3 clamp"
TESTS = "isfinite isinf isnan isnormal signbit"
ONE_WHOLE = "abs clz ctz popcount reverse_bits"
TWO_WHOLES = "addsat subsat hadd rhadd mulhi rotate max min absdiff"
THREE_WHOLES = "madhi madsat clamp max3 min3 median3"
FOLDS = "sum product max min prefix_inclusive_sum prefix_exclusive_product broadcast_first"
MOVES = (
    "shuffle broadcast shuffle_xor shuffle_up shuffle_down shuffle_rotate_up shuffle_rotate_down"
)


def calls(kinds: Sequence[str], names: str, operands: str) -> str:
    """Calls of functions with so many equal operands, written as `TT`, of each of the types."""
    return "\n".join(
        f"{{ auto r = {name}({', '.join(f'{kind}(1)' if o == 'T' else '1' for o in operands)}); }}"
        for kind in kinds
        for name in names.split()
    )


def test_functions_are_there_for_all_their_types(emulated: EmulatedDevice) -> None:
    """Each function of the specification's tables takes numbers and vectors."""
    lanes = [kind for kind in FLOATS + WHOLES if kind != "ulong"]
    groups = [f"{group}_{{}}" for group in ("simd", "quad")]
    body = calls(FLOATS, ONE_FLOAT, "T") + calls(FLOATS, TWO_FLOATS, "TT")
    body += calls(FLOATS, THREE_FLOATS, "TTT") + calls(FLOATS, TESTS, "T")
    body += calls(WHOLES, ONE_WHOLE, "T") + calls(WHOLES, TWO_WHOLES, "TT")
    body += calls(WHOLES, THREE_WHOLES, "TTT") + calls(WHOLES, "extract_bits", "T11")
    for group in groups:
        body += calls(lanes, " ".join(map(group.format, FOLDS.split())), "T")
        body += calls(lanes, " ".join(map(group.format, MOVES.split())), "T1")
        fills = "shuffle_and_fill_up shuffle_and_fill_down"
        body += calls(lanes, " ".join(map(group.format, fills.split())), "TT11")
    emulated.compile(f"{HEAD}kernel void k(device float* out) {{ {body} }}")


def listed(emulated: EmulatedDevice, expressions: str, before: str) -> list[float]:
    """What expressions between semicolons are worth, as floats, by one thread."""
    values = expressions.split(";")
    body = f"if (i == 0) {{ {before} uint n = 0; " + "".join(f"out[n++] = {v};" for v in values)
    found = computed(emulated, body + "}", [np.zeros(32, np.float32)], len(values))
    return [float(each) for each in found]


def test_geometry_and_parts_of_vectors(emulated: EmulatedDevice) -> None:
    """Lengths, products, parts in any order and packed vectors are as arithmetic has them."""
    found = listed(
        emulated,
        """length(a); length_squared(b); distance(a, b); normalize(b).z; dot(a, b);
        cross(a, b).x; cross(a, b).y; cross(a, b).z; reflect(a, float3(0, 1, 0)).y;
        faceforward(a, b, a).x; e.x; e.y; v.r; v.g; v.b; v.a; v.wzyx.y; p.y; float3(p).z;
        sizeof(packed_float3) + sizeof(float3); h.x; h.wzy.z; w.z; u.x; u.y; u.z; u.w;
        max(a, 1.5f).x; (2.0f - a / b.xxx).y; any(a == b.yxz)""",
        """float3 a = float3(1, 2, 2), b(3, 0, 4); float4 v = float4(a.zx, 5, 6); v.yx += float2(10, 20);
        packed_float3 p = a; p.y = 7; p *= 2; half4 h = half4(half2(1, 2), 3, 4); h.wzyx = h;
        float2 e = refract(float2(0.6f, -0.8f), float2(0, 1), 0.5f); int3 w = int3(b); w++;
        uchar4 u = uchar4(float4(-3, 300, 2.5f, 7));""",
    )
    expected = [3, 25, 12**0.5, 0.8, 11, 8, 2, -6, -2, -1, 0.3, -(0.91**0.5), 22, 11, 5, 6, 5, 14]
    expected += [4, 28, 4, 3, 5, 0, 255, 2, 7, 1.5, 2 - 2 / 3, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_matrices(emulated: EmulatedDevice) -> None:
    """Columns first, as Metal has them: products, transposes and determinants."""
    found = listed(
        emulated,
        """c.x; c.z; r.x; r.y; q[0][1]; q[1].y; determinant(s); (s * 2.0f - s)[1][2]""",
        """float2x3 m = float2x3(1, 2, 3, 4, 5, 6); float3 c = m * float2(1, 10);
        float3x3 s(float3(2, 0, 1), float3(1, 3, 2), float3(1, 1, 1));
        float2 r = float3(1, 0, 2) * m; float2x2 q = transpose(m) * m;""",
    )
    m = np.arange(1.0, 7).reshape(2, 3).T
    s = np.array([[2.0, 0, 1], [1, 3, 2], [1, 1, 1]]).T
    c, r, q = m @ [1, 10], [1, 0, 2] @ m, m.T @ m
    expected = [c[0], c[2], r[0], r[1], q[1, 0], q[1, 1], np.linalg.det(s), s[2, 1]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_numbers_and_their_parts(emulated: EmulatedDevice) -> None:
    """Exponents, fractions, packed fractions and the limits of types."""
    found = listed(
        emulated,
        """f; whole; e.x; g.x; e.y; ilogb(10.0f); ldexp(half2(3), int2(2, -1)).y;
        nextafter(1.0f, 2.0f) - 1; nextafter(half(1), half(0)); isnormal(half(6e-8h));
        fmedian3(3.0f, 1.0f, 2.0f); cosine.z; sine.y; b >> 8 & 255; b >> 24; c & 65535;
        unpack_snorm2x16_to_float(c).y; unpack_unorm4x8_to_half(b).z;
        absdiff(char(-128), char(127)); mul24(-5, 7); mad24(3u, 4u, 5u);
        madsat(uchar(200), uchar(2), uchar(1)); HALF_MAX;
        numeric_limits<half>::denorm_min() * 16777216.0f; clz(uchar3(1, 16, 0)).y + ctz(short(8))""",
        """float whole; float f = modf(-2.75f, whole); int2 e; float2 g = frexp(float2(12, 0.3f), e);
        float3 cosine, sine = sincos(float3(0, 1, 2), cosine);
        uint b = pack_float_to_unorm4x8(float4(0, 0.5f, 1, 2));
        uint c = pack_float_to_snorm2x16(float2(-1, 0.25f));""",
    )
    expected = [-0.75, -2, 4, 0.75, -1, 3, 1.5, 2**-23, 1 - 2**-11, 0, 2, np.cos(2), np.sin(1), 128]
    expected += [255, 0x8001, 8192 / 32767, 1, 255, -35, 17, 255, 65504, 1, 6]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_moves_among_lanes(emulated: EmulatedDevice) -> None:
    """Lanes of a SIMD group and of quads turn, fill from the other end, and vote."""
    a = np.arange(32, dtype=np.int32)
    body = """
      out[i] = simd_shuffle_and_fill_up(a[i], 100 + a[i], 3, 8); out[32 + i] = quad_shuffle_rotate_up(a[i], 1);
      out[64 + i] = simd_shuffle_and_fill_down(int4(a[i]), int4(100 + a[i]), 2).z;
      out[96 + i] = quad_shuffle_down(a[i], 3); out[128 + i] = quad_prefix_exclusive_sum(a[i]);
      out[160 + i] = quad_xor(a[i] * a[i]); out[192 + i] = uint(quad_vote::vote_t(quad_ballot(a[i] % 3 == 0)));
      out[224 + i] = quad_broadcast_first(a[i]) + quad_is_first();
    """
    found = computed(emulated, body, [a], 8 * 32).reshape(8, 32)
    quads = a.reshape(8, 4)
    assert (found[0] == np.where(a % 8 < 3, 100 + a + 5, a - 3)).all()
    assert (found[1] == np.roll(quads, 1, 1).ravel()).all()
    assert (found[2] == np.where(a < 30, a + 2, 100 + a - 30)).all()
    assert (found[3] == np.where(a % 4 == 0, a + 3, a)).all()
    assert (found[4] == (np.cumsum(quads, 1) - quads).ravel()).all()
    assert (found[5] == np.repeat(np.bitwise_xor.reduce(quads * quads, 1), 4)).all()
    assert (found[6] == np.repeat(((quads % 3 == 0) << np.arange(4)).sum(1), 4)).all()
    assert (found[7] == a // 4 * 4 + (a % 4 == 0)).all()


def test_atomics_of_all_types(emulated: EmulatedDevice) -> None:
    """Exchange, and the largest and smallest of ulong, which gives back nothing."""
    shaders = emulated.compile(
        f"""{HEAD}
        kernel void k(device atomic_ulong* most, device atomic_float* last, device int* seen,
                      uint i [[thread_position_in_grid]]) {{
          atomic_max_explicit(most, 1ul << (63 - i), memory_order_relaxed);
          seen[i] = int(atomic_exchange_explicit(last, float(i), memory_order_relaxed));
        }}"""
    )
    most, last = (
        emulated.buffer(np.array([5], np.uint64)),
        emulated.buffer(np.array([-1], np.float32)),
    )
    seen = emulated.buffer(4 * 32)
    shaders.run("k", [most, last, seen], [32], [32])
    assert most.read(np.uint64).tolist() == [2**63]
    assert sorted([*seen.read(np.int32), int(last.read(np.float32)[0])]) == list(range(-1, 32))


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
