// Running a program and hearing what it complains of.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace menagerie::metal::emulated {

// Runs the command without a shell, its complaints written to `complaints`, and waits. Whether it
// ended well. Fails if it cannot be started.
bool run(const std::vector<std::string>& command, const std::filesystem::path& complaints);

}  // namespace menagerie::metal::emulated
