#include "common/json.h"

#include <charconv>
#include <cmath>
#include <locale>
#include <sstream>
#include <unordered_set>

#include "common/utf8.h"

namespace menagerie {

// Recursive descent, one function a kind of value.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json document() {
    Json value = read_value(0);
    skip_space();
    check(ended(), "text after the value");
    return value;
  }

 private:
  void check(bool condition, std::string_view fact) const {
    require(condition, "not JSON at byte ", position_, ": ", fact);
  }

  bool ended() const { return position_ == text_.size(); }
  char peek() const { return ended() ? '\0' : text_[position_]; }

  void skip_space() {
    const size_t next = text_.find_first_not_of(" \t\r\n", position_);
    position_ = next == std::string_view::npos ? text_.size() : next;
  }

  bool accept(char wanted) {
    skip_space();
    if (ended() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }

  bool accept_word(std::string_view word) {
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }

  Json read_value(int depth) {
    check(depth < Json::kMaxDepth, "nested too deeply");
    skip_space();
    check(!ended(), "the text ends early");
    if (accept('{')) return Json(read_object(depth));
    if (accept('[')) return Json(read_array(depth));
    if (accept('"')) return Json(read_string());
    if (accept_word("true")) return Json(true);
    if (accept_word("false")) return Json(false);
    if (accept_word("null")) return Json(nullptr);
    return read_number();
  }

  Json::Object read_object(int depth) {
    Json::Object members;
    std::unordered_set<std::string> keys;
    if (accept('}')) return members;
    do {
      check(accept('"'), "a key is missing");
      std::string key = read_string();
      check(keys.insert(key).second, "a key comes twice");
      check(accept(':'), "a colon is missing");
      members.emplace_back(std::move(key), read_value(depth + 1));
    } while (accept(','));
    check(accept('}'), "an object is not closed");
    return members;
  }

  Json::Array read_array(int depth) {
    Json::Array items;
    if (accept(']')) return items;
    do {
      items.push_back(read_value(depth + 1));
    } while (accept(','));
    check(accept(']'), "an array is not closed");
    return items;
  }

  std::string read_string() {
    std::string out;
    while (true) {
      check(!ended(), "a string is not closed");
      const char c = text_[position_++];
      if (c == '"') break;
      check(static_cast<unsigned char>(c) >= 0x20, "a control character in a string");
      if (c == '\\') {
        read_escape(out);
      } else {
        out += c;
      }
    }
    check(is_utf8(out), "a string is not UTF-8");
    return out;
  }

  void read_escape(std::string& out) {
    check(!ended(), "a string is not closed");
    const char c = text_[position_++];
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      out += kValues[known];
      return;
    }
    check(c == 'u', "an unknown escape");
    uint32_t point = read_hex4();
    if (point >= 0xD800 && point < 0xDC00) {
      check(accept_word("\\u"), "half a surrogate pair");
      const uint32_t low = read_hex4();
      check(low >= 0xDC00 && low < 0xE000, "half a surrogate pair");
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    check(point < 0xDC00 || point > 0xDFFF, "half a surrogate pair");
    append_utf8(out, point);
  }

  uint32_t read_hex4() {
    uint32_t value = 0;
    const std::string_view digits = text_.substr(position_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    check(digits.size() == 4 && error == std::errc() && end == digits.data() + 4,
          "four hexadecimal digits are missing");
    position_ += 4;
    return value;
  }

  size_t skip_digits() {
    const size_t first = position_;
    while (peek() >= '0' && peek() <= '9') ++position_;
    return position_ - first;
  }

  Json read_number() {
    const size_t first = position_;
    if (peek() == '-') ++position_;
    const bool leading_zero = peek() == '0';
    const size_t digits = skip_digits();
    check(digits > 0 && (!leading_zero || digits == 1), "no value");
    bool whole = true;
    if (peek() == '.') {
      whole = false;
      ++position_;
      check(skip_digits() > 0, "no digit after the point");
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++position_;
      if (peek() == '+' || peek() == '-') ++position_;
      check(skip_digits() > 0, "no digit in the exponent");
    }
    const std::string_view token = text_.substr(first, position_ - first);
    return whole ? to_integer(token) : to_real(token);
  }

  Json to_integer(std::string_view token) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    check(error == std::errc() && end == token.data() + token.size(), "a number out of range");
    return Json(value);
  }

  // Not from_chars, which Apple's library has for integers only; nor strtod, which follows the
  // application's locale.
  Json to_real(std::string_view token) const {
    std::istringstream text{std::string(token)};
    text.imbue(std::locale::classic());
    double value = 0;
    text >> value;
    check(!text.fail() && std::isfinite(value), "a number out of range");
    return Json(value);
  }

  std::string_view text_;
  size_t position_ = 0;
};

Json Json::parse(std::string_view text) { return JsonReader(text).document(); }

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

}  // namespace menagerie
