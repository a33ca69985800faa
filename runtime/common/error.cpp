#include "common/error.h"

#include <algorithm>
#include <utility>

namespace menagerie {
namespace {

thread_local std::string message;

std::string printable(std::string text) {
  constexpr char kDelete = 0x7F;
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == kDelete; }, '?');
  return text;
}

}  // namespace

Error::Error(std::string message) : std::runtime_error(printable(std::move(message))) {}

void set_last_error(std::string_view function, std::string_view fact) noexcept {
  try {
    message.assign(function);
    if (!function.empty()) message += ": ";
    message += fact;
  } catch (...) {
    message.clear();  // out of memory for text; the code alone must do
  }
}

void clear_last_error() noexcept { message.clear(); }

const char* last_error() noexcept { return message.c_str(); }

}  // namespace menagerie
