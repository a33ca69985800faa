#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <string>

#include "common/error.h"
#include "common/platform/machine.h"

namespace menagerie::machine {
namespace {

utsname names() {
  utsname name{};
  require(::uname(&name) == 0, "the system does not tell its name");
  return name;
}

// The flags line of /proc/cpuinfo, a blank before and after every word.
std::string read_flags() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) {
      return " " + line.substr(std::min(line.find(':') + 1, line.size())) + " ";
    }
  }
  return "";
}

}  // namespace

std::string system() {
  std::string name = names().sysname;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string architecture() { return names().machine; }

// Bundles for Linux name no release.
bool is_at_least(std::string_view) { return false; }

bool has_instructions(std::string_view name) {
  static const std::string flags = read_flags();
  return flags.find(" " + std::string(name) + " ") != std::string::npos;
}

std::string loadable_path(const OpenFile& file) {
  const std::string path = "/proc/self/fd/" + std::to_string(file.descriptor());
  return ::access(path.c_str(), R_OK) == 0 ? path : file.path().string();
}

}  // namespace menagerie::machine
