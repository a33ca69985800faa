// libFuzzer for a compiler that has none: GCC, with which `make setup` builds.
//
// The library is the one of the atheris wheel. GCC calls a function at every edge, which counts the
// edge where libFuzzer looks for counters besides its own (`__libfuzzer_extra_counters`).
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerRunDriver(int* count, char*** arguments,
                                   int (*run)(const uint8_t* data, size_t size));

namespace {

[[gnu::section("__libfuzzer_extra_counters")]] uint8_t counters[size_t{1} << 16];

}  // namespace

// Multiplying by 2^64 over the golden ratio spreads addresses (Knuth, volume 3, section 6.4).
extern "C" [[gnu::no_sanitize("address", "undefined")]] void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  ++counters[(place * 0x9E3779B97F4A7C15) >> 48];
}

// GCC traces these comparisons too; libFuzzer has no use for them.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}

int main(int count, char** arguments) {
  return LLVMFuzzerRunDriver(&count, &arguments, LLVMFuzzerTestOneInput);
}
