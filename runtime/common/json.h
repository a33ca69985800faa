// JSON (RFC 8259) for manifests and safetensors headers, which come from outside: nlohmann's
// parser, and bounded depth, no key twice in an object, whole numbers of 64 bits, nothing after the
// value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/error.h"

namespace menagerie {

class Json {
 public:
  static constexpr size_t kMaxDepth = 32;

  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order of the text

  // Parses the whole text; fails with what is wrong, and with the byte where it is no JSON.
  static Json parse(std::string_view text);

  // Each of these fails, naming `place`, when the value is of another kind.
  const std::string& string(std::string_view place) const;
  int64_t integer(std::string_view place) const;  // a number without fraction or exponent
  double number(std::string_view place) const;
  const Array& array(std::string_view place) const;
  const Object& object(std::string_view place) const;
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

  // The member of an object; at() fails if there is none.
  const Json* find(std::string_view key, std::string_view place) const;
  const Json& at(std::string_view key, std::string_view place) const;

 private:
  friend class JsonBuilder;
  using Value = std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object>;
  explicit Json(Value value) : value_(std::move(value)) {}

  Value value_;
};

}  // namespace menagerie
