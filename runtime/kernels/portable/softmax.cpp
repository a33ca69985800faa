// Rows of a softmax in vectors of eight.
#include <algorithm>
#include <cstring>

#include "common/vector_math.h"
#include "kernels/kernels.h"

namespace menagerie::kernels {
namespace {

constexpr int64_t kLanes = 8;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

Float8 load(const float* values) {
  Float8 x;
  std::memcpy(&x, values, sizeof x);
  return x;
}

// Return the last values of a row, with the missing lanes filled.
Float8 load_rest(const float* values, int64_t count, float filling) {
  Float8 x = Float8{} + filling;
  std::memcpy(&x, values, static_cast<size_t>(count) * sizeof(float));
  return x;
}

// Return e^x for x <= 0; results below the normal range may become zero, so one scaling is enough.
Float8 exp_of_negative(Float8 x) {
  constexpr float kSmallest = -87.0F;
  const Float8 bounded = x > kSmallest ? x : Float8{} + kSmallest;
  Float8 n;
  const Float8 fraction = exp_fraction(bounded, n);
  const Int8x exponent = __builtin_convertvector(n, Int8x) << 23;
  const Float8 value = reinterpret_cast<Float8>(reinterpret_cast<Int8x>(fraction) + exponent);
  return x >= kSmallest ? value : x != x ? x : Float8{};
}

}  // namespace

float maximum(const float* values, int64_t n) {
  Float8 most = Float8{} + kNothing;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Float8 x = load(values + i);
    most = most > x ? most : x;
  }
  if (i < n) {
    const Float8 x = load_rest(values + i, n - i, kNothing);
    most = most > x ? most : x;
  }
  float result = kNothing;
  for (int lane = 0; lane < kLanes; ++lane) result = std::max(result, most[lane]);
  return result;
}

float exponentials(float* values, int64_t n, float highest) {
  Float8 sums{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Float8 x = exp_of_negative(load(values + i) - highest);
    std::memcpy(values + i, &x, sizeof x);
    sums += x;
  }
  if (i < n) {
    const Float8 x = exp_of_negative(load_rest(values + i, n - i, kNothing) - highest);
    std::memcpy(values + i, &x, static_cast<size_t>(n - i) * sizeof(float));
    sums += x;
  }
  float total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sums[lane];
  return total;
}

}  // namespace menagerie::kernels
