// Compiled for x86-64-v4 with BF16: nothing in here may be called on a lesser processor.
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
  constexpr int64_t kStep = 2 * Lanes16::kCount;
  for (; n > 0; n -= kStep, from += kStep, to += Lanes16::kCount) {
    const auto half = [&](int64_t first) {
      const int64_t count = std::clamp<int64_t>(n - first, 0, Lanes16::kCount);
      return (__m512)Lanes16::load_first(from + first, count);
    };
    const auto pairs = _mm512_cvtne2ps_pbh(half(Lanes16::kCount), half(0));
    const int64_t count = std::min<int64_t>((n + 1) / 2, Lanes16::kCount);
    Lanes16::store_first(to, (Lanes16::Vector)pairs, count);
  }
}

// The panel's floats are bfloat16's, so their upper halves are all of them.
void pair_rows(float* panel, int64_t depth, int64_t width) {
  for (int64_t k = 0; k < depth; k += 2) {
    for (int64_t j = 0; j < width; j += Lanes8::kCount) {
      const float* first = panel + k * width + j;
      const __m256i one = _mm256_srli_epi32((__m256i)Lanes8::load(first), 16);
      const __m256i two = k + 1 < depth ? (__m256i)Lanes8::load(first + width) : __m256i{};
      const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
      Lanes8::store(panel + k / 2 * width + j,
                    (Lanes8::Vector)_mm256_or_si256(one, _mm256_and_si256(two, upper)));
    }
  }
}

}  // namespace

constinit const PairKernels bf16_kernels{kPanels, round_row, pair_rows};

}  // namespace menagerie::simd
