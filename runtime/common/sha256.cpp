#include "common/sha256.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <array>
#include <cstdint>
#include <cstring>

#include "common/sha2.h"

namespace menagerie {
namespace sha256_blocks {
namespace {

#ifdef __x86_64__
constexpr auto kRound = sha2::halves<64>(sha2::kRound);

// Intel's SHA extensions, which AMD processors have since Zen and Intel's since Ice Lake.
const __m128i* vectors(const void* address) { return static_cast<const __m128i*>(address); }

__attribute__((target("sha,sse4.1"))) void add(State& state, const std::byte* blocks,
                                               size_t count) {
  // Two rounds at once take the state as (f, e, b, a) and (h, g, d, c), lowest lane first.
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
#endif

}  // namespace

#ifdef __x86_64__
Add by_instructions() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned int kSha = 1U << 29;  // of leaf 7 in EBX
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0 ? add : nullptr;
}
#else
Add by_instructions() { return nullptr; }
#endif

void add_plainly(State& state, const std::byte* blocks, size_t count) {
  for (; count > 0; --count, blocks += kBytes) sha2::compress(state, blocks);
}

}  // namespace sha256_blocks

std::string sha256(std::span<const std::byte> bytes) {
  using sha256_blocks::kBytes;
  static const sha256_blocks::Add instructions = sha256_blocks::by_instructions();
  const sha256_blocks::Add add =
      instructions == nullptr ? sha256_blocks::add_plainly : instructions;
  sha256_blocks::State state = sha2::halves<8>(sha2::kFirst);
  const size_t whole = bytes.size() / kBytes;
  add(state, bytes.data(), whole);

  // Append the rest, a one bit, zeros, and the length in bits, big-endian.
  std::array<std::byte, 2 * kBytes> tail{};
  const size_t rest = bytes.size() % kBytes;
  if (rest > 0) std::memcpy(tail.data(), bytes.data() + whole * kBytes, rest);
  tail[rest] = std::byte{0x80};
  const size_t padded = rest + 9 <= kBytes ? kBytes : 2 * kBytes;
  const uint64_t bits = __builtin_bswap64(static_cast<uint64_t>(bytes.size()) * 8);
  std::memcpy(tail.data() + padded - 8, &bits, 8);
  add(state, tail.data(), padded / kBytes);

  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  }
  return text;
}

}  // namespace menagerie
