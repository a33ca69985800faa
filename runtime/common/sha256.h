// SHA-256 (FIPS 180-4), for checking a bundle's files before they are used.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace menagerie {

// Lower-case hexadecimal digest of the bytes.
std::string sha256(std::span<const std::byte> bytes);

}  // namespace menagerie
