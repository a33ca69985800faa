// Vectorised elementary functions, written with GCC's and Clang's vector extensions so that one text
// serves AVX2 and NEON.
#pragma once

#include <cstdint>
#include <limits>

#include "common/shim_types.h"

namespace menagerie {

using Int8x = int32_t __attribute__((vector_size(32)));

// e^x to within 1 ULP over the whole range, with infinities, NaN, overflow and gradual underflow as
// IEEE wants them. Cody-Waite reduction x = n ln 2 + r, |r| <= ln 2 / 2, and a minimax polynomial.
inline Float8 exp8(Float8 x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693145751953125F;          // 15 bits: n * kLn2High is exact
  constexpr float kLn2Low = 1.42860682030941723212e-6F;
  constexpr float kRound = 12582912.0F;                   // 1.5 * 2^23: adding it rounds to integer
  const Float8 zero{};
  const Float8 bounded = x > 89.0F ? zero + 89.0F : x < -104.0F ? zero - 104.0F : x;
  const Float8 shifted = bounded * kLog2E + kRound;
  const Float8 n = shifted - kRound;
  const Float8 r = (bounded - n * kLn2High) - n * kLn2Low;
  Float8 poly = zero + 1.9856975e-4F;
  poly = poly * r + 1.3938361e-3F;
  poly = poly * r + 8.3333310e-3F;
  poly = poly * r + 4.1666520e-2F;
  poly = poly * r + 1.6666666e-1F;
  poly = poly * r + 0.5F;
  const Float8 fraction = (poly * r) * r + r + 1.0F;
  // 2^n in two halves, so that neither leaves the range of exponents when the result is tiny.
  const Int8x whole = __builtin_convertvector(n, Int8x);
  const Int8x half = whole >> 1;
  const Float8 first = reinterpret_cast<Float8>((half + 127) << 23);
  const Float8 second = reinterpret_cast<Float8>((whole - half + 127) << 23);
  const Float8 value = fraction * first * second;
  return x != x ? x : x > 88.7228317F ? zero + std::numeric_limits<float>::infinity() : value;
}

// Replaces each of the n values by e^(value - highest) and returns their sum.
float exp_of_difference(float* values, int64_t n, float highest);

}  // namespace menagerie
