// SHA-512 (FIPS 180-4), which Ed25519 signatures are over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace menagerie {

// The digest of the bytes of all parts, one after another.
std::array<uint8_t, 64> sha512(std::initializer_list<std::span<const std::byte>> parts);

}  // namespace menagerie
