// Metal's arithmetic functions (Metal Shading Language Specification, 6.3 to 6.6). Half and bfloat
// are computed in float and rounded once. The fast variants are as exact as the precise ones here.
#pragma once

extern "C" {
// Rounds to nearest even; LLVM calls it where the processor has no instruction. It is declared to
// return a float, whose lower half is the result and lies where a __bf16 would: to return one, LLVM
// would call this very function.
__attribute__((visibility("hidden"), used)) inline float __truncsfbf2(float value) {
  const uint whole = __builtin_bit_cast(uint, value);
  const bool nan = (whole & 0x7FFFFFFFU) > 0x7F800000U;
  return __builtin_bit_cast(float, nan ? 0x7FC0U : (whole + 0x7FFFU + (whole >> 16 & 1U)) >> 16);
}
}

namespace metal {

namespace own {
// What a function of T returns: T if it is a floating type, else float.
template <class T>
using Real = conditional_t<is_floating_point_v<T>, T, float>;

// sin(pi (x + quarters / 2)), exact in its argument: what is left of x by quarters of a turn.
inline float sine_of_turns(float x, uint quarters) {
  const float nearest = __builtin_rintf(2.0f * x);
  const float rest = (x - 0.5f * nearest) * M_PI_F;
  const uint quadrant = uint(int(__builtin_fmodf(nearest, 4.0f))) + quarters;
  const float size = quadrant & 1 ? __builtin_cosf(rest) : __builtin_sinf(rest);
  return quadrant & 2 ? -size : size;
}

// Zero for a subnormal: the host's library tells by bits, which the processor does not flush.
inline float flushed(float x) {
#ifdef MENAGERIE_OTHER
  return x;
#endif
  const uint bits = __builtin_bit_cast(uint, x);
  return __builtin_bit_cast(float, (bits & 0x7F800000U) == 0 ? bits & 0x80000000U : bits);
}
}  // namespace own

// A function of vectors element by element, of one that is known for numbers.
#define MENAGERIE_LIFTED(name)                                      \
  template <class... A>                                             \
    requires own::Lifted<A...>                                      \
  constexpr auto name(const A&... a) {                              \
    return own::lifted([](auto... x) { return name(x...); }, a...); \
  }

#define MENAGERIE_UNARY(name, ...)              \
  template <own::Scalar T>                      \
  inline own::Real<T> name(T value) {           \
    const float x = own::flushed(float(value)); \
    return own::Real<T>(__VA_ARGS__);           \
  }                                             \
  MENAGERIE_LIFTED(name)
MENAGERIE_UNARY(acos, __builtin_acosf(x))
MENAGERIE_UNARY(acosh, __builtin_acoshf(x))
MENAGERIE_UNARY(asin, __builtin_asinf(x))
MENAGERIE_UNARY(asinh, __builtin_asinhf(x))
MENAGERIE_UNARY(atan, __builtin_atanf(x))
MENAGERIE_UNARY(atanh, __builtin_atanhf(x))
MENAGERIE_UNARY(ceil, __builtin_ceilf(x))
MENAGERIE_UNARY(cos, __builtin_cosf(x))
MENAGERIE_UNARY(cospi, own::sine_of_turns(x, 1))
MENAGERIE_UNARY(cosh, __builtin_coshf(x))
MENAGERIE_UNARY(exp, __builtin_expf(x))
MENAGERIE_UNARY(exp10, float(__builtin_exp10(double(x))))
MENAGERIE_UNARY(exp2, __builtin_exp2f(x))
MENAGERIE_UNARY(fabs, __builtin_fabsf(x))
MENAGERIE_UNARY(floor, __builtin_floorf(x))
MENAGERIE_UNARY(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
MENAGERIE_UNARY(log, __builtin_logf(x))
MENAGERIE_UNARY(log10, __builtin_log10f(x))
MENAGERIE_UNARY(log2, __builtin_log2f(x))
MENAGERIE_UNARY(rint, __builtin_rintf(x))
MENAGERIE_UNARY(round, __builtin_roundf(x))
MENAGERIE_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))
MENAGERIE_UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)
MENAGERIE_UNARY(sin, __builtin_sinf(x))
MENAGERIE_UNARY(sinh, __builtin_sinhf(x))
MENAGERIE_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
MENAGERIE_UNARY(sinpi, own::sine_of_turns(x, 0))
MENAGERIE_UNARY(sqrt, __builtin_sqrtf(x))
MENAGERIE_UNARY(tan, __builtin_tanf(x))
MENAGERIE_UNARY(tanpi, own::sine_of_turns(x, 0) / own::sine_of_turns(x, 1))
MENAGERIE_UNARY(tanh, __builtin_tanhf(x))
MENAGERIE_UNARY(trunc, __builtin_truncf(x))
#undef MENAGERIE_UNARY

// Of two floats as Metal has it, no template: it comes before those of torch's own headers.
#define MENAGERIE_BINARY(name, ...)                                              \
  inline float name(float a, float b) {                                          \
    const float x = own::flushed(a), y = own::flushed(b);                        \
    return __VA_ARGS__;                                                          \
  }                                                                              \
  template <own::Scalar A, own::Scalar B>                                        \
  inline own::Real<decltype(A() + B())> name(A first, B second) {                \
    const float x = own::flushed(float(first)), y = own::flushed(float(second)); \
    return own::Real<decltype(A() + B())>(__VA_ARGS__);                          \
  }                                                                              \
  MENAGERIE_LIFTED(name)
MENAGERIE_BINARY(atan2, __builtin_atan2f(x, y))
MENAGERIE_BINARY(copysign, __builtin_copysignf(x, y))
MENAGERIE_BINARY(divide, x / y)
MENAGERIE_BINARY(fdim, x > y ? x - y : x <= y ? 0.0f : x + y)
MENAGERIE_BINARY(fmax, __builtin_fmaxf(x, y))
MENAGERIE_BINARY(fmin, __builtin_fminf(x, y))
MENAGERIE_BINARY(fmod, __builtin_fmodf(x, y))
MENAGERIE_BINARY(pow, __builtin_powf(x, y))
MENAGERIE_BINARY(powr, x < 0.0f ? NAN : __builtin_powf(x, y))
MENAGERIE_BINARY(step, y < x ? 0.0f : 1.0f)
#undef MENAGERIE_BINARY

namespace own {
// By its bits: of half and bfloat as of float.
template <class T, class Int>
constexpr T after(T a, T b) {
  if (a != a || b != b) return a + b;
  if (a == b) return b;
  const Int bits = __builtin_bit_cast(Int, a);
  const Int sign = Int(Int(1) << (sizeof(T) * 8 - 1));
  if (a == T(0)) return __builtin_bit_cast(T, Int((b < T(0) ? sign : 0) | 1));
  return __builtin_bit_cast(T, Int(bits + ((a < b) == (a > T(0)) ? 1 : -1)));
}
}  // namespace own

constexpr float nextafter(float a, float b) { return own::after<float, uint>(a, b); }
constexpr half nextafter(half a, half b) { return own::after<half, ushort>(a, b); }
constexpr bfloat nextafter(bfloat a, bfloat b) { return own::after<bfloat, ushort>(a, b); }
template <own::Scalar T>
inline own::Real<T> ldexp(T x, int exponent) {
  return own::Real<T>(__builtin_ldexpf(own::flushed(float(x)), exponent));
}
template <own::Scalar T>
inline int ilogb(T x) {
  return __builtin_ilogbf(own::flushed(float(x)));
}
template <own::Scalar T>
inline own::Real<T> frexp(T x, int& exponent) {
  int result;
  const float fraction = __builtin_frexpf(own::flushed(float(x)), &result);
  exponent = result;
  return own::Real<T>(fraction);
}
template <own::Scalar T>
inline own::Real<T> modf(T x, own::Real<T>& whole) {
  whole = trunc(x);
  return __builtin_isinf(float(x)) ? copysign(own::Real<T>(0), own::Real<T>(x))
                                   : copysign(own::Real<T>(x - whole), own::Real<T>(x));
}
template <own::Scalar T>
inline own::Real<T> sincos(T x, own::Real<T>& cosine) {
  cosine = cos(x);
  return sin(x);
}
#define MENAGERIE_TWO_RESULTS(name)                                    \
  template <class T, uint N, class Second>                             \
  inline vec<T, N> name(const vec<T, N>& x, vec<Second, N>& second) {  \
    vec<T, N> result;                                                  \
    for (uint i = 0; i < N; ++i) result[i] = T(name(x[i], second[i])); \
    return result;                                                     \
  }
MENAGERIE_TWO_RESULTS(frexp)
MENAGERIE_TWO_RESULTS(modf)
MENAGERIE_TWO_RESULTS(sincos)
#undef MENAGERIE_TWO_RESULTS
template <own::Scalar T>
constexpr T abs(T x) {
  if constexpr (is_floating_point_v<T>) return T(__builtin_fabsf(float(x)));
  return x < T(0) ? T(-x) : x;
}
template <own::Scalar T>
constexpr T max(T a, T b) {
  if constexpr (is_floating_point_v<T>) return T(__builtin_fmaxf(float(a), float(b)));
  return a < b ? b : a;
}
template <own::Scalar T>
constexpr T min(T a, T b) {
  if constexpr (is_floating_point_v<T>) return T(__builtin_fminf(float(a), float(b)));
  return b < a ? b : a;
}

// Of one, two or three values of a type, which is the result's.
#define MENAGERIE_OF_ONE(name, ...) \
  template <own::Scalar T>          \
  constexpr T name(T a) {           \
    return T(__VA_ARGS__);          \
  }                                 \
  MENAGERIE_LIFTED(name)
#define MENAGERIE_OF_TWO(name, ...) \
  template <own::Scalar T>          \
  constexpr T name(T a, T b) {      \
    return T(__VA_ARGS__);          \
  }                                 \
  MENAGERIE_LIFTED(name)
#define MENAGERIE_OF_THREE(name, ...) \
  template <own::Scalar T>            \
  constexpr T name(T a, T b, T c) {   \
    return T(__VA_ARGS__);            \
  }                                   \
  MENAGERIE_LIFTED(name)
MENAGERIE_OF_THREE(fma, __builtin_fmaf(float(a), float(b), float(c)))
MENAGERIE_OF_THREE(clamp, min(max(a, b), c))
MENAGERIE_OF_THREE(mix, a + (b - a) * c)
#define MENAGERIE_ORDERED(prefix)                     \
  MENAGERIE_OF_THREE(prefix##max3, max(max(a, b), c)) \
  MENAGERIE_OF_THREE(prefix##min3, min(min(a, b), c)) \
  MENAGERIE_OF_THREE(prefix##median3, max(min(a, b), min(max(a, b), c)))
MENAGERIE_ORDERED()
MENAGERIE_ORDERED(f)
#undef MENAGERIE_ORDERED

template <own::Scalar T>
constexpr T smoothstep(T low, T high, T x) {
  const T t = clamp(T((x - low) / (high - low)), T(0), T(1));
  return t * t * (T(3) - T(2) * t);
}
template <own::Scalar T>
constexpr T select(T no, T yes, bool condition) {
  return condition ? yes : no;
}
MENAGERIE_LIFTED(nextafter)
MENAGERIE_LIFTED(ldexp)
MENAGERIE_LIFTED(ilogb)
MENAGERIE_LIFTED(abs)
MENAGERIE_LIFTED(max)
MENAGERIE_LIFTED(min)
MENAGERIE_LIFTED(smoothstep)
MENAGERIE_LIFTED(select)

#define MENAGERIE_TEST(name, ...) \
  template <own::Scalar T>        \
  constexpr bool name(T value) {  \
    const float x = float(value); \
    return __VA_ARGS__;           \
  }                               \
  MENAGERIE_LIFTED(name)
MENAGERIE_TEST(isnan, __builtin_isnan(x))
MENAGERIE_TEST(isinf, __builtin_isinf(x) != 0)
MENAGERIE_TEST(isfinite, __builtin_isfinite(x))
MENAGERIE_TEST(isnormal, __builtin_isfinite(x) && abs(x) >= float(numeric_limits<T>::min()))
#undef MENAGERIE_TEST
// Through memory: of a bfloat made a float, Clang tests a bit that is always 0.
template <own::Scalar T>
inline bool signbit(T value) {
  float x = float(value);
  asm("" : "+m"(x));
  return __builtin_bit_cast(uint, x) >> 31 != 0;
}
template <own::Scalar A, own::Scalar B>
constexpr bool isunordered(A a, B b) {
  return isnan(a) || isnan(b);
}
template <own::Scalar A, own::Scalar B>
constexpr bool isordered(A a, B b) {
  return !isunordered(a, b);
}
MENAGERIE_LIFTED(signbit)
MENAGERIE_LIFTED(isunordered)
MENAGERIE_LIFTED(isordered)

template <class T, uint N>
constexpr T dot(const vec<T, N>& a, const vec<T, N>& b) {
  T sum = a[0] * b[0];
  for (uint i = 1; i < N; ++i) sum = sum + a[i] * b[i];
  return sum;
}
template <class T, uint N>
constexpr T length_squared(const vec<T, N>& a) {
  return dot(a, a);
}
template <class T, uint N>
inline T length(const vec<T, N>& a) {
  return T(sqrt(dot(a, a)));
}
template <class T, uint N>
constexpr T distance_squared(const vec<T, N>& a, const vec<T, N>& b) {
  return length_squared(a - b);
}
template <class T, uint N>
inline T distance(const vec<T, N>& a, const vec<T, N>& b) {
  return length(a - b);
}
template <class T, uint N>
inline vec<T, N> normalize(const vec<T, N>& a) {
  return a / length(a);
}
template <class T>
constexpr vec<T, 3> cross(const vec<T, 3>& a, const vec<T, 3>& b) {
  return {T(a.y * b.z - a.z * b.y), T(a.z * b.x - a.x * b.z), T(a.x * b.y - a.y * b.x)};
}
template <class T, uint N>
constexpr vec<T, N> faceforward(const vec<T, N>& n, const vec<T, N>& i, const vec<T, N>& along) {
  return dot(along, i) < T(0) ? n : -n;
}
template <class T, uint N>
constexpr vec<T, N> reflect(const vec<T, N>& i, const vec<T, N>& n) {
  return i - T(T(2) * dot(n, i)) * n;
}
template <class T, uint N>
inline vec<T, N> refract(const vec<T, N>& i, const vec<T, N>& n, own::Same<T> eta) {
  const T along = dot(n, i), left = T(1) - eta * eta * (T(1) - along * along);
  return left < T(0) ? vec<T, N>(0) : eta * i - T(eta * along + sqrt(left)) * n;
}

namespace own {
template <class T>
using Bits = make_unsigned_t<T>;
template <class T>
inline constexpr uint kBits = sizeof(T) * 8;
}  // namespace own

MENAGERIE_OF_ONE(popcount, __builtin_popcountl(own::Bits<T>(a)))
MENAGERIE_OF_ONE(ctz, a == 0 ? own::kBits<T> : __builtin_ctzl(own::Bits<T>(a)))
MENAGERIE_OF_ONE(clz,
                 a == 0 ? own::kBits<T> : __builtin_clzl(own::Bits<T>(a)) - (64 - own::kBits<T>))
MENAGERIE_OF_ONE(reverse_bits, __builtin_bitreverse64(own::Bits<T>(a)) >> (64 - own::kBits<T>))
template <own::Scalar T>
constexpr T rotate(T x, T by) {
  const uint bits = uint(by) % own::kBits<T>;
  return bits == 0 ? x : T(own::Bits<T>(x) << bits | own::Bits<T>(x) >> (own::kBits<T> - bits));
}
namespace own {
typedef unsigned __int128 Wide;
// Of 128 bits, which hold every sum and product.
template <class T>
constexpr T bounded(__int128 x) {
  const __int128 low = numeric_limits<T>::min(), high = numeric_limits<T>::max();
  return T(x < low ? low : x > high ? high : x);
}
}  // namespace own

MENAGERIE_OF_TWO(addsat, own::bounded<T>(__int128(a) + b))
MENAGERIE_OF_TWO(subsat, own::bounded<T>(__int128(a) - b))
MENAGERIE_OF_TWO(hadd, (__int128(a) + b) >> 1)
MENAGERIE_OF_TWO(rhadd, (__int128(a) + b + 1) >> 1)
MENAGERIE_OF_TWO(mulhi, is_signed_v<T> ? own::Wide(__int128(a) * b >> own::kBits<T>)
                                       : own::Wide(a) * own::Wide(b) >> own::kBits<T>)
MENAGERIE_OF_TWO(mul24, uint(a) * uint(b))
MENAGERIE_OF_THREE(mad24, uint(a) * uint(b) + uint(c))
MENAGERIE_OF_THREE(madhi, own::Bits<T>(mulhi(a, b)) + own::Bits<T>(c))
#undef MENAGERIE_OF_ONE
#undef MENAGERIE_OF_TWO
#undef MENAGERIE_OF_THREE
template <own::Scalar T>
constexpr own::Bits<T> absdiff(T a, T b) {
  return own::Bits<T>(a < b ? __int128(b) - a : __int128(a) - b);
}
template <own::Scalar T>
constexpr T madsat(T a, T b, T c) {
  if constexpr (is_signed_v<T>) return own::bounded<T>(__int128(a) * b + c);
  const own::Wide sum = own::Wide(a) * own::Wide(b) + own::Wide(c);
  return sum > own::Wide(numeric_limits<T>::max()) ? numeric_limits<T>::max() : T(sum);
}
template <own::Scalar T>
constexpr T extract_bits(T x, uint offset, uint bits) {
  if (bits == 0) return T(0);
  return T(T(own::Bits<T>(x) << (own::kBits<T> - offset - bits)) >> (own::kBits<T> - bits));
}
template <own::Scalar T>
constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
  if (bits == 0) return base;
  const own::Bits<T> mask = own::Bits<T>(
      own::Bits<T>(own::Bits<T>(~own::Bits<T>(0)) >> (own::kBits<T> - bits)) << offset);
  return T((own::Bits<T>(base) & own::Bits<T>(~mask)) |
           (own::Bits<T>(own::Bits<T>(insert) << offset) & mask));
}
MENAGERIE_LIFTED(rotate)
MENAGERIE_LIFTED(absdiff)
MENAGERIE_LIFTED(madsat)
// The places of bits are numbers, the same for all elements.
template <class T, uint N>
constexpr vec<T, N> extract_bits(const vec<T, N>& x, uint offset, uint bits) {
  return own::lifted([=](T one) { return extract_bits(one, offset, bits); }, x);
}
template <class T, uint N>
constexpr vec<T, N> insert_bits(const vec<T, N>& base, const vec<T, N>& insert, uint offset,
                                uint bits) {
  return own::lifted([=](T a, T b) { return insert_bits(a, b, offset, bits); }, base, insert);
}
#undef MENAGERIE_LIFTED

namespace own {
// Fractions of an unsigned or signed integer's largest value, the first in the lowest bits
// (7.7.2 and 7.7.3 of the specification).
template <class Int, uint N>
inline uint packed_fractions(const vec<float, N>& v) {
  const float most = float(numeric_limits<Int>::max()), least = is_signed_v<Int> ? -1.0f : 0.0f;
  uint result = 0;
  for (uint i = 0; i < N; ++i) {
    const Int part = Int(rint(clamp(v[i], least, 1.0f) * most));
    result |= uint(Bits<Int>(part)) << (i * kBits<Int>);
  }
  return result;
}
template <class T, class Int, uint N>
inline vec<T, N> unpacked_fractions(uint bits) {
  vec<T, N> result;
  for (uint i = 0; i < N; ++i) {
    const float part = float(Int(bits >> (i * kBits<Int>))) / float(numeric_limits<Int>::max());
    result[i] = T(max(part, -1.0f));
  }
  return result;
}
}  // namespace own

#define MENAGERIE_PACKING(T, name, Int, N)               \
  inline uint pack_##T##_to_##name(const vec<T, N>& v) { \
    return own::packed_fractions<Int>(vec<float, N>(v)); \
  }                                                      \
  inline vec<T, N> unpack_##name##_to_##T(uint bits) {   \
    return own::unpacked_fractions<T, Int, N>(bits);     \
  }
#define MENAGERIE_PACKINGS(T)                \
  MENAGERIE_PACKING(T, unorm4x8, uchar, 4)   \
  MENAGERIE_PACKING(T, snorm4x8, char, 4)    \
  MENAGERIE_PACKING(T, unorm2x16, ushort, 2) \
  MENAGERIE_PACKING(T, snorm2x16, short, 2)
MENAGERIE_PACKINGS(float)
MENAGERIE_PACKINGS(half)
#undef MENAGERIE_PACKINGS
#undef MENAGERIE_PACKING

namespace precise {
using namespace metal;
}
namespace fast {
using namespace metal;
}

}  // namespace metal
