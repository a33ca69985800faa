#include "common/json.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace menagerie {

// A builder of values from the library's parser; it refuses what the library would let pass.
class JsonBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Json take() { return std::move(open_.front()); }

  bool null() override { return put(Json(nullptr)); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool string(std::string& value) override { return put(Json(std::move(value))); }
  bool number_integer(int64_t value) override { return put(Json(value)); }
  bool number_unsigned(uint64_t value) override {
    require(value <= INT64_MAX, "not JSON: a number out of range");
    return put(Json(static_cast<int64_t>(value)));
  }
  // The library turns integers that are too large for it into real numbers.
  bool number_float(double value, const std::string& token) override {
    require(token.find_first_of(".eE") != std::string::npos, "not JSON: a number out of range");
    return put(Json(value));
  }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // text has no binary values

  bool start_object(size_t) override { return start(Json(Json::Object())); }
  bool start_array(size_t) override { return start(Json(Json::Array())); }
  bool end_array() override { return end(); }
  bool key(std::string& name) override {
    keys_.push_back(std::move(name));
    return true;
  }
  bool end_object() override {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : std::get<Json::Object>(open_.back().value_)) {
      names.push_back(name);
    }
    std::ranges::sort(names);
    require(std::ranges::adjacent_find(names) == names.end(), "not JSON: duplicate key");
    return end();
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[number] parse error at line 1, column 9: what is wrong; last read: 'some of the text'"
    std::string_view fact = error.what();
    fact.remove_prefix(std::min(fact.find("] ") + 2, fact.size()));
    if (fact.starts_with("number overflow")) fact = "a number out of range";
    if (const size_t colon = fact.find(": "); fact.starts_with("parse error at")) {
      fact.remove_prefix(std::min(colon + 2, fact.size()));
    }
    fail("not JSON at byte ", position > 0 ? position - 1 : 0, ": ",
         fact.substr(0, fact.find("; last read")));
  }

 private:
  bool start(Json container) {
    require(open_.size() < Json::kMaxDepth, "not JSON: nested too deeply");
    open_.push_back(std::move(container));
    return true;
  }

  bool end() {
    if (open_.size() == 1) return true;  // the document
    Json whole = std::move(open_.back());
    open_.pop_back();
    return put(std::move(whole));
  }

  bool put(Json value) {
    if (open_.empty()) {
      open_.push_back(std::move(value));
    } else if (auto* items = std::get_if<Json::Array>(&open_.back().value_)) {
      items->push_back(std::move(value));
    } else {
      std::get<Json::Object>(open_.back().value_)
          .emplace_back(std::move(keys_.back()), std::move(value));
      keys_.pop_back();
    }
    return true;
  }

  std::vector<Json> open_;         // from the outermost container to the current one
  std::vector<std::string> keys_;  // whose values are still being read
};

Json Json::parse(std::string_view text) {
  // The library skips a byte order mark and stops at a NUL.
  require(!text.starts_with("\xef\xbb\xbf"), "not JSON at byte 0: a byte order mark");
  const size_t end = text.find('\0');
  require(end == std::string_view::npos, "not JSON at byte ", end, ": a NUL");
  JsonBuilder builder;
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

const std::string& Json::string(std::string_view place) const {
  require(is_string(), place, " is not a string");
  return std::get<std::string>(value_);
}

int64_t Json::integer(std::string_view place) const {
  require(std::holds_alternative<int64_t>(value_), place, " is not an integer");
  return std::get<int64_t>(value_);
}

double Json::number(std::string_view place) const {
  if (const auto* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  require(std::holds_alternative<double>(value_), place, " is not a number");
  return std::get<double>(value_);
}

const Json::Array& Json::array(std::string_view place) const {
  require(std::holds_alternative<Array>(value_), place, " is not an array");
  return std::get<Array>(value_);
}

const Json::Object& Json::object(std::string_view place) const {
  require(std::holds_alternative<Object>(value_), place, " is not an object");
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key, std::string_view place) const {
  for (const auto& [name, value] : object(place)) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key, std::string_view place) const {
  const Json* found = find(key, place);
  require(found != nullptr, place, " lacks \"", key, "\"");
  return *found;
}

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
  // The manifest lists neither itself, nor its signatures, nor what some file systems take for
  // them, nor a file in a folder of such a name.
  const std::string outermost = in_lower_case(path.substr(0, path.find('/')));
  bool plain = !path.empty() && path.size() <= kLongest && outermost != "manifest.json" &&
               outermost != "signature.json" && outermost != "model.sig";
  char previous = '/';
  for (const char c : path + "/") {
    const bool first = previous == '/';
    plain = plain && (is_word(c) || (!first && (c == '.' || c == '-' || c == '/')));
    previous = c;
  }
  require(plain, place, ": \"", path, "\" is not a path inside the bundle");
}

}  // namespace menagerie
