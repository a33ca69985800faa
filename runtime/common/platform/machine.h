// What this machine is, in the words that a bundle's `requires` uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/mapped_file.h"

namespace menagerie::machine {

std::string system();        // linux, darwin
std::string architecture();  // x86_64, arm64, aarch64
// Whether the system's release is this one or later, compared number by number: "15.0".
bool is_at_least(std::string_view release);
// Whether the processor has these instructions, named as the system names them (avx2, fma, ...).
bool has_instructions(std::string_view name);
// Processors' worth of time that the control groups of this process grant it, rounded up; a large
// number where they set none. The root is where /proc and /sys are.
int32_t processor_quota(const std::filesystem::path& root = "/");
// A path by which dlopen opens this very file, where the system has one.
std::string loadable_path(const OpenFile& file);

}  // namespace menagerie::machine
