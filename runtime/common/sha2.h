// What SHA-256 and SHA-512 (FIPS 180-4) share. The constants of SHA-256 are the upper halves of
// those of SHA-512, which has more rounds and rotates words by other amounts.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace menagerie::sha2 {

template <class Word>
using State = std::array<Word, 8>;

inline constexpr std::array<uint64_t, 80> kRound = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
    0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
    0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
    0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
    0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
    0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
    0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
    0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
    0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
    0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
    0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817};

inline constexpr State<uint64_t> kFirst = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

// Return the first numbers of a table as words of SHA-256.
template <size_t kCount>
constexpr std::array<uint32_t, kCount> halves(const auto& numbers) {
  std::array<uint32_t, kCount> upper{};
  for (size_t i = 0; i < kCount; ++i) upper[i] = static_cast<uint32_t>(numbers[i] >> 32);
  return upper;
}

// Update the state with one block of sixteen words.
template <class Word>
void compress(State<Word>& state, const std::byte* block) {
  constexpr bool kLong = sizeof(Word) == 8;
  constexpr size_t kRounds = kLong ? 80 : 64;
  const auto turned = [](Word x, int long_by, int by) {
    return std::rotr(x, kLong ? long_by : by);
  };
  std::array<Word, kRounds> w;
  for (size_t i = 0; i < 16; ++i) {
    std::memcpy(&w[i], block + i * sizeof(Word), sizeof(Word));
    w[i] = kLong ? static_cast<Word>(__builtin_bswap64(w[i]))
                 : static_cast<Word>(__builtin_bswap32(static_cast<uint32_t>(w[i])));
  }
  for (size_t i = 16; i < kRounds; ++i) {
    const Word a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (turned(a, 1, 7) ^ turned(a, 8, 18) ^ a >> (kLong ? 7 : 3)) +
           (turned(b, 19, 17) ^ turned(b, 61, 19) ^ b >> (kLong ? 6 : 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < kRounds; ++i) {
    const Word t1 = h + (turned(e, 14, 6) ^ turned(e, 18, 11) ^ turned(e, 41, 25)) +
                    ((e & f) ^ (~e & g)) + static_cast<Word>(kLong ? kRound[i] : kRound[i] >> 32) +
                    w[i];
    const Word t2 =
        (turned(a, 28, 2) ^ turned(a, 34, 13) ^ turned(a, 39, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const State<Word> sum = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < sum.size(); ++i) state[i] += sum[i];
}

}  // namespace menagerie::sha2
