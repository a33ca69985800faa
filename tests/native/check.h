// The smallest frame for tests: named cases, checks that say where they failed, exit status.
#pragma once

#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"

namespace check {

using Case = std::pair<std::string, std::function<void()>>;

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline int failures = 0;

struct Registered {
  Registered(std::string name, std::function<void()> body) {
    cases().emplace_back(std::move(name), std::move(body));
  }
};

inline void that(bool holds, std::string_view text, const char* file, int line) {
  if (holds) return;
  ++failures;
  std::cerr << file << ":" << line << ": does not hold: " << text << "\n";
}

// The body fails with an error that says this fact.
template <class Body>
void refuses(std::string_view fact, Body&& body, const char* file, int line) {
  std::string said = "nothing";
  try {
    body();
  } catch (const menagerie::Error& error) {
    said = error.what();
  }
  that(said.find(fact) != std::string::npos, "refused with '" + std::string(fact) + "': " + said,
       file, line);
}

// Whether the body ends, well or with an error of ours: anything else is for the sanitizers.
template <class Body>
bool passes(Body&& body) {
  try {
    body();
    return true;
  } catch (const menagerie::Error&) {
    return false;
  }
}

}  // namespace check

#define CHECK_JOIN_(a, b) a##b
#define CHECK_JOIN(a, b) CHECK_JOIN_(a, b)
// TEST("promise") { ... }
#define TEST(name) CHECK_TEST(name, __COUNTER__)
#define CHECK_TEST(name, number)                                                              \
  static void CHECK_JOIN(test_, number)();                                                    \
  static const check::Registered CHECK_JOIN(entry_, number)(name, CHECK_JOIN(test_, number)); \
  static void CHECK_JOIN(test_, number)()
#define CHECK(condition) check::that(condition, #condition, __FILE__, __LINE__)
#define REFUSES(fact, ...) check::refuses(fact, [&] { __VA_ARGS__; }, __FILE__, __LINE__)
