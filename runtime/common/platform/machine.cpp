#include "common/platform/machine.h"

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/error.h"

namespace menagerie::machine {
namespace {

utsname names() {
  utsname name{};
  require(::uname(&name) == 0, "the system does not tell its name");
  return name;
}

#ifdef __APPLE__
std::string text_of(const char* key) {
  size_t size = 0;
  require(::sysctlbyname(key, nullptr, &size, nullptr, 0) == 0, "the system does not tell ", key);
  std::string text(size, '\0');
  require(::sysctlbyname(key, text.data(), &size, nullptr, 0) == 0, "the system does not tell ",
          key);
  return text.c_str();  // without the terminating zero
}

// Parse "15.0.1" as {15, 0, 1}.
std::vector<int> numbers_of(std::string_view release) {
  std::vector<int> numbers;
  const char* next = release.data();
  const char* end = next + release.size();
  while (next < end) {
    int number = 0;
    const auto [stop, error] = std::from_chars(next, end, number);
    require(error == std::errc() && (stop == end || *stop == '.'), "\"", release,
            "\" is not a release");
    numbers.push_back(number);
    next = stop == end ? end : stop + 1;
  }
  return numbers;
}
#else
// Return the flags line of /proc/cpuinfo, with a blank before and after every word.
std::string read_flags() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) {
      return " " + line.substr(std::min(line.find(':') + 1, line.size())) + " ";
    }
  }
  return "";
}

// Return the quota of one group: version 2 has both numbers in one file, version 1 in two.
double quota_of(const std::filesystem::path& group) {
  double quota = 0;  // "max" and -1 mean none
  double period = 0;
  if (std::ifstream both(group / "cpu.max"); both >> quota >> period) return quota / period;
  std::ifstream(group / "cpu.cfs_quota_us") >> quota;
  std::ifstream(group / "cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : INT32_MAX;
}
#endif

}  // namespace

std::string system() {
  std::string name = names().sysname;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string architecture() { return names().machine; }

#ifdef __APPLE__
bool is_at_least(std::string_view release) {
  std::vector<int> own = numbers_of(text_of("kern.osproductversion"));
  std::vector<int> wanted = numbers_of(release);
  own.resize(std::max(own.size(), wanted.size()));  // 15 is 15.0
  wanted.resize(own.size());
  return own >= wanted;
}

// Bundles for a Mac name no instructions: every Apple processor has those that arm64 code is
// compiled for.
bool has_instructions(std::string_view) { return false; }

int32_t processor_quota(const std::filesystem::path&) { return INT32_MAX; }

std::string loadable_path(const OpenFile& file) { return file.path().string(); }

#else
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
    while (true) {  // a group has no more than its ancestors
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

#endif

}  // namespace menagerie::machine
