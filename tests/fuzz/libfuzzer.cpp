// What libFuzzer calls: the target that MENAGERIE_FUZZ names. `make fuzz` builds and runs it.
#include <cstddef>
#include <cstdint>

#include "target.h"

namespace {

const fuzz::Target& chosen() {
  static const fuzz::Target& target = []() -> const fuzz::Target& {
    const char* name = std::getenv("MENAGERIE_FUZZ");
    const auto found = fuzz::targets().find(name == nullptr ? "" : name);
    if (found != fuzz::targets().end()) return found->second;
    std::cerr << "MENAGERIE_FUZZ is none of:";
    for (const auto& each : fuzz::targets()) std::cerr << " " << each.first;
    std::cerr << "\n";
    std::exit(2);
  }();
  return target;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::takes(chosen(), {reinterpret_cast<const char*>(data), size});
  return 0;
}
