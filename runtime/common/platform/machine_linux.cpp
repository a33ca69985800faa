#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
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

// The quota of one group: version 2 has both numbers in one file, version 1 in two.
double quota_of(const std::filesystem::path& group) {
  double quota = 0;  // "max" and -1: none
  double period = 0;
  if (std::ifstream both(group / "cpu.max"); both >> quota >> period) return quota / period;
  std::ifstream(group / "cpu.cfs_quota_us") >> quota;
  std::ifstream(group / "cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : INT32_MAX;
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

// Lines are "0::/a/b" in version 2 and "3:cpu,cpuacct:/a/b" in version 1.
int32_t processor_quota(const std::filesystem::path& root) {
  double least = INT32_MAX;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers != ",," && controllers.find(",cpu,") == std::string::npos) continue;
    const auto top = root / "sys/fs/cgroup" / (controllers == ",," ? "" : "cpu");
    std::filesystem::path group(line.substr(second + 1));
    while (true) {  // a group has no more than those around it
      least = std::min(least, quota_of(top / group.relative_path()));
      if (!group.has_relative_path()) break;
      group = group.parent_path();
    }
  }
  return static_cast<int32_t>(std::max(std::ceil(least), 1.0));
}

std::string loadable_path(const OpenFile& file) {
  const std::string path = "/proc/self/fd/" + std::to_string(file.descriptor());
  return ::access(path.c_str(), R_OK) == 0 ? path : file.path().string();
}

}  // namespace menagerie::machine
