// Verification of Ed25519 signatures (RFC 8032); the curve's arithmetic is Monocypher's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace menagerie {

using PublicKey = std::array<uint8_t, 32>;
using SignatureBytes = std::array<uint8_t, 64>;

// Return whether the holder of the key signed the message.
bool ed25519_signed(const SignatureBytes& signature, const PublicKey& key,
                    std::span<const std::byte> message);

}  // namespace menagerie
