// Properties of this machine, in the terms of a bundle's `requires`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/mapped_file.h"

namespace menagerie::machine {

std::string system();        // linux, darwin
std::string architecture();  // x86_64, arm64, aarch64
// Return whether the system's release is at least this one, compared number by number: "15.0".
bool is_at_least(std::string_view release);
// Return whether the processor has instructions, by the system's name for them (avx2, fma, ...).
bool has_instructions(std::string_view name);
// Return the number of processors' worth of time that control groups grant this process, rounded
// up; a large number if they set no limit. The root is where /proc and /sys are.
int32_t processor_quota(const std::filesystem::path& root = "/");
// Return a path by which dlopen opens this very file, where the system has one.
std::string loadable_path(const OpenFile& file);

}  // namespace menagerie::machine
