// The compiler that makes shaders run on the host: clang of the ziglang wheel, called without a
// shell. What it makes is kept in a folder under names that hash all it was made from.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace menagerie::metal::emulated {

// Sets the command that clang's and lld's arguments follow, and the folder for what is compiled.
void configure(std::vector<std::string> compiler, std::filesystem::path cache_folder);

// The shared library that Metal source compiles to, from the cache if it is there. Safe to call
// from several threads and processes. Fails with the compiler's first error.
std::filesystem::path compiled(const std::string& source);

}  // namespace menagerie::metal::emulated
