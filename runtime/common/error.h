// Errors inside the runtime are exceptions; the ABI turns them into a code and a message of the
// thread.
#pragma once

#include <cstdint>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace menagerie {

// An error of one printable line: messages quote outside files, which must not control a terminal.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string message);
};

// Throw an Error whose message is the concatenation of all parts.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

// Set the calling thread's message: the function's name, unless empty, and the fact.
void set_last_error(std::string_view function, std::string_view fact) noexcept;
void clear_last_error() noexcept;
const char* last_error() noexcept;

// Run body and return 0; turn whatever it throws into 1 and a message that names the function.
template <class Body>
int32_t guarded(std::string_view function, Body&& body) noexcept {
  try {
    body();
    return 0;
  } catch (const std::bad_alloc&) {
    set_last_error(function, "out of memory");
  } catch (const std::exception& error) {
    set_last_error(function, error.what());
  } catch (...) {
    set_last_error(function, "unknown failure");
  }
  return 1;
}

}  // namespace menagerie
