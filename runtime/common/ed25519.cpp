#include "common/ed25519.h"

#include <algorithm>

#include "common/sha512.h"
#include "menagerie.h"
#include "third_party/monocypher/monocypher.h"

namespace menagerie {

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
