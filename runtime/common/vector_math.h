// Vectorised elementary functions, written with GCC's and Clang's vector extensions so that one
// source serves AVX2 and NEON.
#pragma once

#include <cstdint>
#include <limits>

#include "common/shim_types.h"

namespace menagerie {

using Int8x = int32_t __attribute__((vector_size(32)));

// Split x = n ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite) and return e^r by a minimax
// polynomial; n must fit the exponent of a float, or lie next to its range.
inline Float8 exp_fraction(Float8 x, Float8& n) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693145751953125F;  // 15 bits: n * kLn2High is exact
  constexpr float kLn2Low = 1.42860682030941723212e-6F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  n = (x * kLog2E + kRound) - kRound;
  const Float8 r = (x - n * kLn2High) - n * kLn2Low;
  Float8 poly = Float8{} + 1.9856975e-4F;
  poly = poly * r + 1.3938361e-3F;
  poly = poly * r + 8.3333310e-3F;
  poly = poly * r + 4.1666520e-2F;
  poly = poly * r + 1.6666666e-1F;
  poly = poly * r + 0.5F;
  return (poly * r) * r + r + 1.0F;
}

// Return e^x to within 1 ULP over the whole range, with infinities, NaN, overflow and gradual
// underflow as IEEE requires.
inline Float8 exp8(Float8 x) {
  constexpr float kLargest = 88.7228317F;  // the last x whose exponential is finite
  constexpr float kSmallest = -104.0F;     // below it the result rounds to zero
  const Float8 zero{};
  const Float8 bounded = x > 89.0F ? zero + 89.0F : x < kSmallest ? zero + kSmallest : x;
  Float8 n;
  const Float8 fraction = exp_fraction(bounded, n);
  // 2^n in two halves, so that neither leaves the range of exponents where the result is tiny.
  const Int8x whole = __builtin_convertvector(n, Int8x);
  const Int8x half = whole >> 1;
  const Float8 first = reinterpret_cast<Float8>((half + 127) << 23);
  const Float8 second = reinterpret_cast<Float8>((whole - half + 127) << 23);
  const Float8 value = fraction * first * second;
  return x != x ? x : x > kLargest ? zero + std::numeric_limits<float>::infinity() : value;
}

// Return 1 / (1 + e^-x).
inline Float8 sigmoid8(Float8 x) { return 1.0F / (1.0F + exp8(-x)); }

// Return tanh x: near zero by the power series (Abramowitz and Stegun 4.5.64), so that small
// results are as exact as large ones; elsewhere by the exponential.
inline Float8 tanh8(Float8 x) {
  constexpr float kNear = 0.3F;  // the next term of the series is below 2^-24 of the result
  const Float8 square = x * x;
  Float8 series = Float8{} - 1382.0F / 155925.0F;
  series = series * square + 62.0F / 2835.0F;
  series = series * square - 17.0F / 315.0F;
  series = series * square + 2.0F / 15.0F;
  series = series * square - 1.0F / 3.0F;
  const Float8 near = x + x * square * series;
  const Float8 size = x < 0.0F ? -x : x;
  const Float8 far = 1.0F - 2.0F / (exp8(size + size) + 1.0F);
  return size < kNear ? near : x < 0.0F ? -far : far;
}

}  // namespace menagerie
