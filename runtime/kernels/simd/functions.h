// Activations of vectors, and of tiles that were just stored. Local to the including file.
#pragma once

#include <limits>

#include "kernels/simd/kernels.h"
#include "kernels/simd/vectors.h"

namespace menagerie::simd {
namespace {

// Evaluate a polynomial of x by Horner's rule, the highest power's factor first.
template <class Lanes, class... Factors>
typename Lanes::Vector polynomial(typename Lanes::Vector x, float highest, Factors... others) {
  auto sum = Lanes::all(highest);
  ((sum = Lanes::multiply_add(sum, x, Lanes::all(others))), ...);
  return sum;
}

// Return e^x for -87 <= x <= 87 or NaN, to a relative 3e-7 near zero and 1.3e-6 far out: a power of
// two times a polynomial nearest to 2^r over -1/2 <= r <= 1/2, to a relative 1.1e-7 (by iteratively
// weighted least squares). The rest of log2(e) is left out: a relative 1.3e-8 per unit of x.
template <class Lanes>
typename Lanes::Vector exponential(typename Lanes::Vector x) {
  const auto log2_of_e = Lanes::all(1.44269504F);
  const auto n = Lanes::rounded(x * log2_of_e);
  const auto r = Lanes::multiply_add(x, log2_of_e, -n);
  return Lanes::scaled(polynomial<Lanes>(r, 1.32647273e-3F, 9.67151299e-3F, 5.55073358e-2F,
                                         2.40222424e-1F, 6.93147004e-1F, 1.0F),
                       n);
}

// Return 1 / (1 + e^-x) by the square of e^(-x/2): zero if e^-x overflows, as in eager PyTorch.
template <class Lanes>
typename Lanes::Vector sigmoid(typename Lanes::Vector x) {
  const auto half = Lanes::clamped(x * -0.5F, Lanes::all(-44.4F), Lanes::all(44.4F));
  const auto root = exponential<Lanes>(half);
  const auto share = Lanes::inverse(Lanes::multiply_add(root, root, Lanes::all(1)));
  return Lanes::zero_below(x, Lanes::all(-88.72F), share);
}

// Minus infinity gives NaN, as in eager PyTorch.
template <class Lanes>
typename Lanes::Vector silu(typename Lanes::Vector x) {
  return x * sigmoid<Lanes>(x);
}

template <class Lanes>
typename Lanes::Vector hard_sigmoid(typename Lanes::Vector x) {
  const auto line = Lanes::multiply_add(x, Lanes::all(1.0F / 6), Lanes::all(0.5F));
  return Lanes::clamped(line, Lanes::all(0), Lanes::all(1));
}

template <class Lanes>
typename Lanes::Vector hard_swish(typename Lanes::Vector x) {
  return x * hard_sigmoid<Lanes>(x);
}

// Return x * P(X <= x) for a normal X. The excess over 1/2 is an odd rational function, fitted over
// |x| <= 5.2 by iteratively weighted least squares to 6e-8; farther out it is 1/2 to 1.4e-7. All x
// below -5.2 give zero, and minus infinity NaN, as in eager PyTorch.
template <class Lanes>
typename Lanes::Vector gelu(typename Lanes::Vector x) {
  const auto lowest = Lanes::all(-5.2F);
  const auto bounded = Lanes::clamped(x, lowest, Lanes::all(5.2F));
  const auto square = bounded * bounded;
  const auto above = polynomial<Lanes>(square, 5.84060354e-06F, 0.000314261881F, 0.00551872281F,
                                       0.0495933481F, 0.398941904F);
  const auto below = polynomial<Lanes>(square, 5.01898398e-07F, 0.000112740265F, 0.00270373886F,
                                       0.0373397581F, 0.290972859F, 1.0F);
  const auto share = Lanes::multiply_add(bounded * above, Lanes::inverse(below), Lanes::all(0.5F));
  return x * Lanes::zero_below(x, lowest, share);
}

// Rows of values, and the destination of their activations.
struct ValueRows {
  const float* from;
  int64_t from_row;
  float* to;
  int64_t to_row;
  int64_t rows, columns;
};

template <class Lanes, typename Lanes::Vector function(typename Lanes::Vector)>
void each(const ValueRows& s) {
  const int64_t rest = s.columns % Lanes::kCount, whole = s.columns - rest;
  for (int64_t i = 0; i < s.rows; ++i) {
    const float* from = s.from + i * s.from_row;
    float* to = s.to + i * s.to_row;
    for (int64_t j = 0; j < whole; j += Lanes::kCount) {
      Lanes::store(to + j, function(Lanes::load(from + j)));
    }
    if (rest == 0) continue;
    const auto last = Lanes::load_first(from + whole, rest);
    Lanes::store_first(to + whole, function(last), rest);
  }
}

template <class Lanes>
__attribute__((noinline)) void activate(kernels::Activation activation, const ValueRows& rows) {
  using kernels::Activation;
  switch (activation) {
    case Activation::kSwish:
      return each<Lanes, silu<Lanes>>(rows);
    case Activation::kSigmoid:
      return each<Lanes, sigmoid<Lanes>>(rows);
    case Activation::kHardSwish:
      return each<Lanes, hard_swish<Lanes>>(rows);
    case Activation::kHardSigmoid:
      return each<Lanes, hard_sigmoid<Lanes>>(rows);
    case Activation::kGeluErf:
      return each<Lanes, gelu<Lanes>>(rows);
    default:
      return;
  }
}

// Return e^x for x <= 0, zero below e^-87.
template <class Lanes>
typename Lanes::Vector exponential_of_negative(typename Lanes::Vector x) {
  const auto lowest = Lanes::all(-87);
  return Lanes::zero_below(x, lowest, exponential<Lanes>(Lanes::larger(lowest, x)));
}

template <class Lanes>
float row_maximum(const float* values, int64_t n) {
  constexpr int64_t kChains = 4;  // in flight at once, as each waits for its last comparison
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
  using Wide = VectorGroup<Lanes, 3>;
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
}  // namespace menagerie::simd
