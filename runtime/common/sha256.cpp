#include "common/sha256.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "common/sha256_blocks.h"

namespace menagerie {
namespace sha256_blocks {
namespace {

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

}  // namespace

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
