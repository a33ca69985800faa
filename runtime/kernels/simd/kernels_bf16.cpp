// Compiled for x86-64-v4 with BF16: nothing here may be called on a lesser processor.
#include <algorithm>

#include "kernels/simd/tiles.h"

namespace menagerie::simd {
namespace {

// Each number stands for two neighbouring terms in bfloat16, the first in its lower half.
struct Pairs16 : Lanes16 {
  static Vector accumulate(Vector left, Vector right, Vector sum) {
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)right);
  }
};
struct Pairs8 : Lanes8 {
  static Vector accumulate(Vector left, Vector right, Vector sum) {
    return (Vector)_mm256_dpbf16_ps((__m256)sum, (__m256bh)left, (__m256bh)right);
  }
};

constexpr PanelKernel kPanels[] = {
    {2 * Lanes16::kCount, 14, multiply<Pairs16, 2, 14>},
    {Lanes16::kCount, 14, multiply<Pairs16, 1, 14>},
    {Lanes8::kCount, 14, multiply<Pairs8, 1, 14>},
};

void round_row(const float* from, int64_t n, float* to) {
  constexpr int64_t kCount = Lanes16::kCount;
  const auto pairs = [](auto first, auto second) {
    return (Lanes16::Vector)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
  };
  for (; n >= 2 * kCount; n -= 2 * kCount, from += 2 * kCount, to += kCount) {
    Lanes16::store(to, pairs(Lanes16::load(from), Lanes16::load(from + kCount)));
  }
  const int64_t first = std::min(n, kCount);
  const auto second = Lanes16::load_first(from + first, n - first);
  Lanes16::store_first(to, pairs(Lanes16::load_first(from, first), second), (n + 1) / 2);
}

void pair_rows(float* panel, int64_t depth, int64_t width) {
  for (int64_t k = 0; k < depth; k += 2) {
    for (int64_t j = 0; j < width; j += Lanes8::kCount) {
      const auto rounded = [&](int64_t row) {
        const auto floats = row < depth ? Lanes8::load(panel + row * width + j) : Lanes8::all(0);
        return _mm256_cvtepu16_epi32((__m128i)_mm256_cvtneps_pbh((__m256)floats));
      };
      const __m256i pairs = _mm256_or_si256(rounded(k), _mm256_slli_epi32(rounded(k + 1), 16));
      Lanes8::store(panel + k / 2 * width + j, (Lanes8::Vector)pairs);
    }
  }
}

}  // namespace

constinit const PairKernels bf16_kernels{kPanels, round_row, pair_rows};

}  // namespace menagerie::simd
