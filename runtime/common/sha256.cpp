#include "common/sha256.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace menagerie {
namespace sha256_blocks {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress(State& state, const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (int i = 0; i < 16; ++i) {
    uint32_t word;
    std::memcpy(&word, block + i * 4, 4);
    w[i] = __builtin_bswap32(word);
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15];
    const uint32_t b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                        ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const State sum = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += sum[i];
}

#ifdef __x86_64__
// Intel's SHA extensions, which AMD's processors have since Zen and Intel's since Ice Lake.
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
  for (; count > 0; --count, blocks += kBytes) compress(state, blocks);
}

}  // namespace sha256_blocks

std::string sha256(std::span<const std::byte> bytes) {
  using sha256_blocks::kBytes;
  static const sha256_blocks::Add instructions = sha256_blocks::by_instructions();
  const sha256_blocks::Add add =
      instructions == nullptr ? sha256_blocks::add_plainly : instructions;
  sha256_blocks::State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = bytes.size() / kBytes;
  add(state, bytes.data(), whole);

  // The rest, a one bit, zeros, and the length in bits, big-endian.
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
