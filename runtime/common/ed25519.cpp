#include "common/ed25519.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/sha2.h"
#include "menagerie.h"
#include "third_party/monocypher/monocypher.h"

namespace menagerie {
namespace {

constexpr size_t kBlock = 128;

// Return the SHA-512 (FIPS 180-4) of the concatenated bytes of all parts.
std::array<uint8_t, 64> sha512(std::initializer_list<std::span<const std::byte>> parts) {
  std::vector<std::byte> text;
  for (const auto& part : parts) text.insert(text.end(), part.begin(), part.end());
  const auto bits = static_cast<uint64_t>(text.size()) * 8;
  // Append a one bit, zeros, and the length in bits as a 128-bit big-endian number.
  text.push_back(std::byte{0x80});
  while (text.size() % kBlock != kBlock - 16) text.push_back(std::byte{0});
  text.insert(text.end(), 8, std::byte{0});
  for (int shift = 56; shift >= 0; shift -= 8) text.push_back(std::byte(bits >> shift));

  sha2::State<uint64_t> state = sha2::kFirst;
  for (size_t i = 0; i < text.size(); i += kBlock) sha2::compress(state, text.data() + i);
  std::array<uint8_t, 64> digest;
  for (size_t i = 0; i < state.size(); ++i) {
    const uint64_t word = __builtin_bswap64(state[i]);
    std::memcpy(digest.data() + i * 8, &word, 8);
  }
  return digest;
}

}  // namespace

bool ed25519_signed(const SignatureBytes& signature, const PublicKey& key,
                    std::span<const std::byte> message) {
  const auto point = std::as_bytes(std::span(signature)).first(32);
  const auto digest = sha512({point, std::as_bytes(std::span(key)), message});
  std::array<uint8_t, 32> scalar;
  crypto_eddsa_reduce(scalar.data(), digest.data());
  return crypto_eddsa_check_equation(signature.data(), key.data(), scalar.data()) == 0;
}

}  // namespace menagerie

int menagerie_ed25519_check(const uint8_t signature[64], const uint8_t key[32],
                            const uint8_t* message, size_t bytes) {
  menagerie::SignatureBytes given;
  menagerie::PublicKey signer;
  std::copy_n(signature, given.size(), given.begin());
  std::copy_n(key, signer.size(), signer.begin());
  return menagerie::ed25519_signed(given, signer, std::as_bytes(std::span(message, bytes))) ? 0 : 1;
}
