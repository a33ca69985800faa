#include "common/error.h"

namespace menagerie {
namespace {
thread_local std::string message;
}

void set_last_error(std::string_view function, std::string_view fact) noexcept {
  try {
    message.assign(function);
    if (!function.empty()) message += ": ";
    message += fact;
  } catch (...) {
    message.clear();  // no memory for words; the code alone must do
  }
}

void clear_last_error() noexcept { message.clear(); }

const char* last_error() noexcept { return message.c_str(); }

}  // namespace menagerie
