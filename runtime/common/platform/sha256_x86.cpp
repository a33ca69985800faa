// Intel's SHA extensions, which AMD's processors have since Zen and Intel's since Ice Lake.
#include <cpuid.h>
#include <immintrin.h>

#include "common/sha256_blocks.h"

namespace menagerie::sha256_blocks {
namespace {

const __m128i* vectors(const void* address) { return static_cast<const __m128i*>(address); }

__attribute__((target("sha,sse4.1"))) void add(State& state, const std::byte* blocks,
                                               size_t count) {
  // Two rounds at once want the state as (f, e, b, a) and (h, g, d, c), lowest lane first.
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(vectors(&state[0])), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(vectors(&state[4])), 0x1B);
  __m128i feba = _mm_alignr_epi8(badc, hgfe, 8);
  __m128i hgdc = _mm_blend_epi16(hgfe, badc, 0xF0);
  const __m128i big_endian = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
  for (; count > 0; --count, blocks += kBytes) {
    const __m128i feba_before = feba, hgdc_before = hgdc;
    __m128i words[4];  // the last sixteen of the message schedule
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; ++i) {
      __m128i& next = words[i % 4];
      if (i < 4) {
        next = _mm_shuffle_epi8(_mm_loadu_si128(vectors(blocks) + i), big_endian);
      } else {
        const __m128i last = words[(i + 3) % 4];
        const __m128i seven_back = _mm_alignr_epi8(last, words[(i + 2) % 4], 4);
        const __m128i first = _mm_sha256msg1_epu32(next, words[(i + 1) % 4]);
        next = _mm_sha256msg2_epu32(_mm_add_epi32(first, seven_back), last);
      }
      const __m128i four = _mm_add_epi32(next, _mm_loadu_si128(vectors(&kRound[4 * i])));
      hgdc = _mm_sha256rnds2_epu32(hgdc, feba, four);
      feba = _mm_sha256rnds2_epu32(feba, hgdc, _mm_shuffle_epi32(four, 0x0E));
    }
    feba = _mm_add_epi32(feba, feba_before);
    hgdc = _mm_add_epi32(hgdc, hgdc_before);
  }
  const __m128i abef = _mm_shuffle_epi32(feba, 0x1B), ghcd = _mm_shuffle_epi32(hgdc, 0xB1);
  const auto to = [&](size_t i) { return static_cast<__m128i*>(static_cast<void*>(&state[i])); };
  _mm_storeu_si128(to(0), _mm_blend_epi16(abef, ghcd, 0xF0));
  _mm_storeu_si128(to(4), _mm_alignr_epi8(ghcd, abef, 8));
}

}  // namespace

Add by_instructions() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned int kSha = 1U << 29;  // of leaf 7 in EBX
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0 ? add : nullptr;
}

}  // namespace menagerie::sha256_blocks
