#include "cpu/vector_math.h"

#include <cstring>

namespace menagerie {

float exp_of_difference(float* values, int64_t n, float highest) {
  Float8 sums{};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    Float8 x;
    std::memcpy(&x, values + i, sizeof x);
    x = exp8(x - highest);
    std::memcpy(values + i, &x, sizeof x);
    sums += x;
  }
  if (i < n) {
    Float8 x = Float8{} - std::numeric_limits<float>::infinity();
    std::memcpy(&x, values + i, static_cast<size_t>(n - i) * sizeof(float));
    x = exp8(x - highest);
    std::memcpy(values + i, &x, static_cast<size_t>(n - i) * sizeof(float));
    sums += x;
  }
  float total = 0;
  for (int lane = 0; lane < 8; ++lane) total += sums[lane];
  return total;
}

}  // namespace menagerie
