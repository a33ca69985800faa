// What this machine is, in the words that a bundle's `requires` uses.
#pragma once

#include <string>
#include <string_view>

namespace menagerie::machine {

std::string system();        // linux, darwin
std::string architecture();  // x86_64, arm64, aarch64
// Whether the system's release is this one or later, compared number by number: "15.0".
bool is_at_least(std::string_view release);
// Whether the processor has these instructions, named as the system names them (avx2, fma, ...).
bool has_instructions(std::string_view name);

}  // namespace menagerie::machine
