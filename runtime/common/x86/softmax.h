// Rows of a softmax, in vectors of one width. Local to the including file.
#pragma once

#include <limits>

#include "common/x86/activations.h"
#include "common/x86/vectors.h"

namespace menagerie::x86 {
namespace {

// e^x for x <= 0, nought below e^-87.
template <class Lanes>
typename Lanes::Vector exponential_of_negative(typename Lanes::Vector x) {
  const auto lowest = Lanes::all(-87);
  return Lanes::nought_below(x, lowest, exponential<Lanes>(Lanes::larger(lowest, x)));
}

template <class Lanes>
float row_maximum(const float* values, int64_t n) {
  constexpr int64_t kChains = 4;  // under way at once, as each waits for its last comparison
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  typename Lanes::Vector most[kChains];
  for (auto& chain : most) chain = Lanes::all(kNothing);
  int64_t i = 0;
  for (; i + kChains * Lanes::kCount <= n; i += kChains * Lanes::kCount) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kChains; ++j) {
      most[j] = Lanes::larger(most[j], Lanes::load(values + i + j * Lanes::kCount));
    }
  }
  float result = kNothing;
  for (; i < n; ++i) result = values[i] > result ? values[i] : result;
  for (const auto& chain : most) {
    for (int64_t lane = 0; lane < Lanes::kCount; ++lane) {
      result = chain[lane] > result ? chain[lane] : result;
    }
  }
  return result;
}

template <class Lanes>
float row_exponentials(float* values, int64_t n, float highest) {
  using Wide = Together<Lanes, 3>;
  const int64_t rest = n % Lanes::kCount, whole = n - rest;
  auto wide_sums = Wide::all(0);
  int64_t i = 0;
  for (; i + Wide::kCount <= whole; i += Wide::kCount) {
    const auto x = exponential_of_negative<Wide>(Wide::load(values + i) + Wide::all(-highest));
    Wide::store(values + i, x);
    wide_sums = wide_sums + x;
  }
  auto sums = Lanes::all(0);
  for (const auto& part : wide_sums.part) sums += part;
  for (; i < whole; i += Lanes::kCount) {
    const auto x = exponential_of_negative<Lanes>(Lanes::load(values + i) - highest);
    Lanes::store(values + i, x);
    sums += x;
  }
  float total = 0;
  for (int64_t lane = 0; lane < Lanes::kCount; ++lane) total += sums[lane];
  if (rest == 0) return total;
  float* last = values + whole;
  const auto x = exponential_of_negative<Lanes>(Lanes::load_first(last, rest) - highest);
  Lanes::store_first(last, x, rest);
  for (int64_t j = 0; j < rest; ++j) total += last[j];
  return total;
}

}  // namespace
}  // namespace menagerie::x86
