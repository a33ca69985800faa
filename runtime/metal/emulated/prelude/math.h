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

#define MENAGERIE_UNARY(name, ...)                 \
  template <Scalar T>                              \
  inline Real<T> name(T value) {                   \
    const float x = flushed(float(value));         \
    return Real<T>(__VA_ARGS__);                   \
  }                                                \
  template <class T, uint N>                       \
  inline vec<T, N> name(const vec<T, N>& v) {      \
    return map(v, [](T x) { return T(name(x)); }); \
  }
MENAGERIE_UNARY(acos, __builtin_acosf(x))
MENAGERIE_UNARY(acosh, __builtin_acoshf(x))
MENAGERIE_UNARY(asin, __builtin_asinf(x))
MENAGERIE_UNARY(asinh, __builtin_asinhf(x))
MENAGERIE_UNARY(atan, __builtin_atanf(x))
MENAGERIE_UNARY(atanh, __builtin_atanhf(x))
MENAGERIE_UNARY(ceil, __builtin_ceilf(x))
MENAGERIE_UNARY(cos, __builtin_cosf(x))
MENAGERIE_UNARY(cospi, sine_of_turns(x, 1))
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
MENAGERIE_UNARY(sinpi, sine_of_turns(x, 0))
MENAGERIE_UNARY(sqrt, __builtin_sqrtf(x))
MENAGERIE_UNARY(tan, __builtin_tanf(x))
MENAGERIE_UNARY(tanpi, sine_of_turns(x, 0) / sine_of_turns(x, 1))
MENAGERIE_UNARY(tanh, __builtin_tanhf(x))
MENAGERIE_UNARY(trunc, __builtin_truncf(x))
#undef MENAGERIE_UNARY

// Of two floats as Metal has it, no template: it comes before those of torch's own headers.
#define MENAGERIE_BINARY(name, ...)                                    \
  inline float name(float a, float b) {                                \
    const float x = flushed(a), y = flushed(b);                        \
    return __VA_ARGS__;                                                \
  }                                                                    \
  template <Scalar A, Scalar B>                                        \
  inline Real<decltype(A() + B())> name(A first, B second) {           \
    const float x = flushed(float(first)), y = flushed(float(second)); \
    return Real<decltype(A() + B())>(__VA_ARGS__);                     \
  }                                                                    \
  template <class T, uint N>                                           \
  inline vec<T, N> name(const vec<T, N>& a, const vec<T, N>& b) {      \
    return map(a, b, [](T x, T y) { return T(name(x, y)); });          \
  }
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

inline float nextafter(float a, float b) { return __builtin_nextafterf(a, b); }
template <Scalar T>
inline Real<T> ldexp(T x, int exponent) {
  return Real<T>(__builtin_ldexpf(float(x), exponent));
}
template <Scalar T>
inline Real<T> frexp(T x, int& exponent) {
  int result;
  const float fraction = __builtin_frexpf(float(x), &result);
  exponent = result;
  return Real<T>(fraction);
}
template <Scalar T>
inline Real<T> sincos(T x, Real<T>& cosine) {
  cosine = cos(x);
  return sin(x);
}
template <class T>
inline T fma(T a, T b, T c) {
  if constexpr (is_floating_point_v<T>) {
    return T(__builtin_fmaf(float(a), float(b), float(c)));
  } else {
    T result;
    for (uint i = 0; i < sizeof(T) / sizeof(a[0]); ++i) result[i] = fma(a[i], b[i], c[i]);
    return result;
  }
}

template <Scalar T>
constexpr T abs(T x) {
  if constexpr (is_floating_point_v<T>) return T(__builtin_fabsf(float(x)));
  return x < T(0) ? T(-x) : x;
}
template <Scalar T>
constexpr T max(T a, T b) {
  if constexpr (is_floating_point_v<T>) return T(__builtin_fmaxf(float(a), float(b)));
  return a < b ? b : a;
}
template <Scalar T>
constexpr T min(T a, T b) {
  if constexpr (is_floating_point_v<T>) return T(__builtin_fminf(float(a), float(b)));
  return b < a ? b : a;
}
template <Scalar T>
constexpr T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
template <class T>
constexpr T max3(T a, T b, T c) {
  return max(max(a, b), c);
}
template <class T>
constexpr T min3(T a, T b, T c) {
  return min(min(a, b), c);
}
template <class T>
constexpr T median3(T a, T b, T c) {
  return max(min(a, b), min(max(a, b), c));
}
template <class T>
constexpr T mix(T a, T b, T part) {
  return a + (b - a) * part;
}
template <class T>
constexpr T smoothstep(T low, T high, T x) {
  const T t = clamp((x - low) / (high - low), T(0), T(1));
  return t * t * (T(3) - T(2) * t);
}
template <Scalar T>
constexpr T select(T no, T yes, bool condition) {
  return condition ? yes : no;
}

template <class T, uint N>
constexpr vec<T, N> abs(const vec<T, N>& v) {
  return map(v, [](T x) { return abs(x); });
}
template <class T, uint N>
constexpr vec<T, N> max(const vec<T, N>& a, const vec<T, N>& b) {
  return map(a, b, [](T x, T y) { return max(x, y); });
}
template <class T, uint N>
constexpr vec<T, N> min(const vec<T, N>& a, const vec<T, N>& b) {
  return map(a, b, [](T x, T y) { return min(x, y); });
}
template <class T, uint N>
constexpr vec<T, N> clamp(const vec<T, N>& v, const vec<T, N>& low, const vec<T, N>& high) {
  return min(max(v, low), high);
}
template <class T, uint N>
constexpr vec<T, N> select(const vec<T, N>& no, const vec<T, N>& yes, const vec<bool, N>& which) {
  vec<T, N> result;
  for (uint i = 0; i < N; ++i) result[i] = which[i] ? yes[i] : no[i];
  return result;
}

#define MENAGERIE_TEST(name, ...)                   \
  template <Scalar T>                               \
  constexpr bool name(T value) {                    \
    const float x = float(value);                   \
    return __VA_ARGS__;                             \
  }                                                 \
  template <class T, uint N>                        \
  constexpr vec<bool, N> name(const vec<T, N>& v) { \
    return map(v, [](T x) { return name(x); });     \
  }
MENAGERIE_TEST(isnan, __builtin_isnan(x))
MENAGERIE_TEST(isinf, __builtin_isinf(x) != 0)
MENAGERIE_TEST(isfinite, __builtin_isfinite(x))
#undef MENAGERIE_TEST
// Through memory: of a bfloat made a float, Clang tests a bit that is always 0.
template <Scalar T>
inline bool signbit(T value) {
  float x = float(value);
  asm("" : "+m"(x));
  return __builtin_bit_cast(uint, x) >> 31 != 0;
}
template <class T, uint N>
inline vec<bool, N> signbit(const vec<T, N>& v) {
  return map(v, [](T x) { return signbit(x); });
}
template <Scalar A, Scalar B>
constexpr bool isunordered(A a, B b) {
  return isnan(a) || isnan(b);
}

template <class T, uint N>
constexpr T dot(const vec<T, N>& a, const vec<T, N>& b) {
  T sum = a[0] * b[0];
  for (uint i = 1; i < N; ++i) sum = sum + a[i] * b[i];
  return sum;
}

template <class T>
using Bits = make_unsigned_t<T>;
template <class T>
inline constexpr uint kBits = sizeof(T) * 8;
template <class T>
constexpr T popcount(T x) {
  return T(__builtin_popcountl(Bits<T>(x)));
}
template <class T>
constexpr T ctz(T x) {
  return x == 0 ? T(kBits<T>) : T(__builtin_ctzl(Bits<T>(x)));
}
template <class T>
constexpr T clz(T x) {
  return x == 0 ? T(kBits<T>) : T(__builtin_clzl(Bits<T>(x)) - (64 - kBits<T>));
}
template <class T>
constexpr T reverse_bits(T x) {
  return T(__builtin_bitreverse64(Bits<T>(x)) >> (64 - kBits<T>));
}
template <class T>
constexpr T rotate(T x, T by) {
  const uint bits = uint(by) % kBits<T>;
  return bits == 0 ? x : T(Bits<T>(x) << bits | Bits<T>(x) >> (kBits<T> - bits));
}
// Of 128 bits, which hold every sum and product.
template <class T>
constexpr T bounded(__int128 x) {
  const __int128 low = numeric_limits<T>::min(), high = numeric_limits<T>::max();
  return T(x < low ? low : x > high ? high : x);
}
template <class T>
constexpr T addsat(T a, T b) {
  return bounded<T>(__int128(a) + b);
}
template <class T>
constexpr T subsat(T a, T b) {
  return bounded<T>(__int128(a) - b);
}
template <class T>
constexpr T hadd(T a, T b) {
  return T((__int128(a) + b) >> 1);
}
template <class T>
constexpr T rhadd(T a, T b) {
  return T((__int128(a) + b + 1) >> 1);
}
template <class T>
constexpr T absdiff(T a, T b) {
  return T(a < b ? __int128(b) - a : __int128(a) - b);
}
template <class T>
constexpr T mulhi(T a, T b) {
  typedef unsigned __int128 Wide;
  return is_signed_v<T> ? T(__int128(a) * b >> kBits<T>) : T(Wide(a) * Wide(b) >> kBits<T>);
}
template <class T>
constexpr T madhi(T a, T b, T c) {
  return T(Bits<T>(mulhi(a, b)) + Bits<T>(c));
}
template <class T>
constexpr T madsat(T a, T b, T c) {
  return bounded<T>(__int128(a) * b + c);
}
template <class T>
constexpr T extract_bits(T x, uint offset, uint bits) {
  if (bits == 0) return T(0);
  return T(T(Bits<T>(x) << (kBits<T> - offset - bits)) >> (kBits<T> - bits));
}
template <class T>
constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
  if (bits == 0) return base;
  const Bits<T> mask = Bits<T>(Bits<T>(Bits<T>(~Bits<T>(0)) >> (kBits<T> - bits)) << offset);
  return T((Bits<T>(base) & Bits<T>(~mask)) | (Bits<T>(Bits<T>(insert) << offset) & mask));
}
namespace precise {
using namespace metal;
}
namespace fast {
using namespace metal;
}

}  // namespace metal
