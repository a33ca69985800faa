#include <sys/sysctl.h>
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/platform/machine.h"

namespace menagerie::machine {
namespace {

utsname names() {
  utsname name{};
  require(::uname(&name) == 0, "the system does not tell its name");
  return name;
}

std::string text_of(const char* key) {
  size_t size = 0;
  require(::sysctlbyname(key, nullptr, &size, nullptr, 0) == 0, "the system does not tell ", key);
  std::string text(size, '\0');
  require(::sysctlbyname(key, text.data(), &size, nullptr, 0) == 0, "the system does not tell ",
          key);
  return text.c_str();  // without the terminating nought
}

// "15.0.1" as {15, 0, 1}.
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

}  // namespace

std::string system() {
  std::string name = names().sysname;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string architecture() { return names().machine; }

bool is_at_least(std::string_view release) {
  std::vector<int> own = numbers_of(text_of("kern.osproductversion"));
  std::vector<int> wanted = numbers_of(release);
  own.resize(std::max(own.size(), wanted.size()));  // 15 is 15.0
  wanted.resize(own.size());
  return own >= wanted;
}

// Bundles for a Mac name no instructions: every Apple processor has what arm64 code is compiled
// for.
bool has_instructions(std::string_view) { return false; }

int32_t processor_quota(const std::filesystem::path&) { return INT32_MAX; }

std::string loadable_path(const OpenFile& file) { return file.path().string(); }

}  // namespace menagerie::machine
