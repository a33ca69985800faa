// What is fuzzed: one reader for each target, and what must hold of whatever it took.
//
// The targets run in two ways. `make test-native` plays their corpora and some thousands of seeded
// mutations of these under the sanitizers (replay.cpp). `make fuzz` hands them to libFuzzer, which
// keeps the inputs that reach new code (libfuzzer.cpp).
#pragma once

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "common/error.h"

namespace fuzz {

using Target = std::function<void(std::string_view bytes)>;

inline std::map<std::string, Target, std::less<>>& targets() {
  static std::map<std::string, Target, std::less<>> all;
  return all;
}

struct Registered {
  Registered(const char* name, Target target) { targets().emplace(name, std::move(target)); }
};

// Ends the process, as a sanitizer would: libFuzzer then keeps the input.
inline void must(bool holds, const char* text) {
  if (holds) return;
  std::cerr << "does not hold: " << text << "\n";
  std::abort();
}

// Runs a target; that it refuses the bytes with an error of ours is well.
inline bool takes(const Target& target, std::string_view bytes) {
  try {
    target(bytes);
    return true;
  } catch (const menagerie::Error&) {
    return false;
  }
}

}  // namespace fuzz

#define MUST(condition) fuzz::must(condition, #condition)
// FUZZ(json) { ... `bytes` ... }
#define FUZZ(name)                                                \
  static void fuzz_##name(std::string_view bytes);                \
  static const fuzz::Registered entry_##name(#name, fuzz_##name); \
  static void fuzz_##name(std::string_view bytes)
