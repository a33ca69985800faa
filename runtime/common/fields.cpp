#include "common/fields.h"

#include <algorithm>
#include <cctype>

namespace menagerie {
namespace {

constexpr std::string_view kOutermost = "manifest";

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return c == '_' || is_lower(c) || is_digit(c) || (c >= 'A' && c <= 'Z'); }

bool is_name(std::string_view text) {
  return !text.empty() && is_lower(text.front()) &&
         std::ranges::all_of(text, [](char c) { return c == '_' || is_lower(c) || is_digit(c); });
}

bool is_digest(std::string_view text) {
  return text.size() == 64 &&
         std::ranges::all_of(text, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

}  // namespace

Fields::Fields(const Json& value, std::string place, Names required, Names optional)
    : value_(value), place_(std::move(place)) {
  const auto among = [](const Names& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const auto& [name, member] : value_.object(place_)) {
    require(among(required, name) || among(optional, name), place_, " has an unknown member \"",
            name, "\"");
  }
  for (const std::string_view name : required) at(name);
}

const Json* Fields::given(std::string_view name) const {
  const Json* found = value_.find(name, place_);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const std::string& Fields::name(std::string_view name) const {
  const std::string& found = text(name);
  check_name(found, place_of(name));
  return found;
}

const std::string& Fields::digest(std::string_view name) const {
  const std::string& found = text(name);
  require(is_digest(found), place_of(name), ": \"", found, "\" is not a sha256");
  return found;
}

const std::string& Fields::path(std::string_view name) const {
  const std::string& found = text(name);
  check_inner_path(found, place_of(name));
  return found;
}

std::optional<std::string> Fields::optional_text(std::string_view name) const {
  if (given(name) == nullptr) return std::nullopt;
  return text(name);
}

std::string Fields::place_of(std::string_view name) const {
  return place_ == kOutermost ? std::string(name) : place_ + "." + std::string(name);
}

std::string in_lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void check_name(std::string_view text, std::string_view place) {
  require(is_name(text), place, ": \"", text, "\" is not a name");
}

void check_inner_path(const std::string& path, std::string_view place) {
  constexpr size_t kLongest = 200;
  // The manifest lists neither itself nor its signature, nor what some file systems take for them.
  const std::string lowered = in_lower_case(path);
  bool plain = !path.empty() && path.size() <= kLongest && lowered != "manifest.json" &&
               lowered != "signature.json";
  char previous = '/';
  for (const char c : path + "/") {
    const bool first = previous == '/';
    plain = plain && (is_word(c) || (!first && (c == '.' || c == '-' || c == '/')));
    previous = c;
  }
  require(plain, place, ": \"", path, "\" is not a path inside the bundle");
}

}  // namespace menagerie
