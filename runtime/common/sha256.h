// SHA-256 (FIPS 180-4), for checking a bundle's files before they are used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace menagerie {

// Return the lower-case hexadecimal digest of the bytes.
std::string sha256(std::span<const std::byte> bytes);

}  // namespace menagerie

namespace menagerie::sha256_blocks {

// SHA-256 by blocks, with the processor's own instructions where it has them.
inline constexpr size_t kBytes = 64;
using State = std::array<uint32_t, 8>;
// A function that updates the state with `count` consecutive blocks.
using Add = void (*)(State& state, const std::byte* blocks, size_t count);

void add_plainly(State& state, const std::byte* blocks, size_t count);

// Return the function that uses SHA instructions; null if the processor has none.
Add by_instructions();

}  // namespace menagerie::sha256_blocks
