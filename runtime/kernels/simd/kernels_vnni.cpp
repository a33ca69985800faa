// Compiled for x86-64-v4 with VNNI: nothing here may be called on a lesser processor.
#include <cstring>

#include "kernels/simd/tiles.h"

namespace menagerie::simd {
namespace {

constexpr int kVectors = 2;
constexpr int kMostRows = 10;  // sums take 20 of the 32 registers; with more the compiler spills
constexpr int64_t kGroup = 4;  // products that one instruction adds up

using Integers = int32_t __attribute__((vector_size(64)));

__m512i four_everywhere(const uint8_t* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof four);
  return _mm512_set1_epi32(four);
}

template <int kRows, bool kWhole>
void multiply_integers(const IntegerTile& t, const Finish& finish) {
  Integers sum[kRows][kVectors];
#pragma GCC unroll 2
  for (int j = 0; j < kVectors; ++j) {
    const auto first = (Integers)_mm512_loadu_si512(t.start + j * Lanes16::kCount);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) sum[i][j] = first;
  }
  const int8_t* weights = t.weights;
  for (int64_t k = 0; k < t.depth; k += kGroup, weights += kVectors * sizeof(__m512i)) {
    __m512i right[kVectors];
#pragma GCC unroll 2
    for (int j = 0; j < kVectors; ++j) {
      right[j] = _mm512_loadu_si512(weights + static_cast<size_t>(j) * sizeof(__m512i));
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const __m512i left = four_everywhere(t.input + i * t.input_row + k);
#pragma GCC unroll 2
      for (int j = 0; j < kVectors; ++j) {
        sum[i][j] = (Integers)_mm512_dpbusd_epi32((__m512i)sum[i][j], left, right[j]);
      }
    }
  }
  Sums<Lanes16, kRows, kVectors, kWhole> results(t.columns);
#pragma GCC unroll 2
  for (int j = 0; j < kVectors; ++j) {
    const auto factor = Lanes16::load(t.factor + j * Lanes16::kCount);
    const auto bias = Lanes16::load(t.bias + j * Lanes16::kCount);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto exact = (Lanes16::Vector)_mm512_cvtepi32_ps((__m512i)sum[i][j]);
      results.sum[i][j] = Lanes16::multiply_add(exact, factor, bias);
    }
  }
  results.end(finish, t.output, t.output_row);
}

// Multiply 1 to kRows rows.
template <int kRows>
void multiply_integer_rows(const IntegerTile& t, const Finish& finish) {
  if constexpr (kRows > 1) {
    if (t.rows < kRows) return multiply_integer_rows<kRows - 1>(t, finish);
  }
  if (t.columns == kVectors * Lanes16::kCount) return multiply_integers<kRows, true>(t, finish);
  multiply_integers<kRows, false>(t, finish);
}

}  // namespace

constinit const IntegerKernel vnni_kernel{kVectors * Lanes16::kCount, kMostRows,
                                          multiply_integer_rows<kMostRows>};

}  // namespace menagerie::simd
