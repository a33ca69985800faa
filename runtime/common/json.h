// JSON (RFC 8259) for manifests and safetensors headers, which come from outside: nlohmann's parser
// with bounded depth, no duplicate keys in an object, integers of 64 bits, and nothing after the
// value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
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

  // Parse the whole text; fail with the reason, and with the byte where it is not JSON.
  static Json parse(std::string_view text);

  // Each of these fails, naming `place`, when the value is of another kind.
  const std::string& string(std::string_view place) const;
  int64_t integer(std::string_view place) const;  // a number without fraction or exponent
  double number(std::string_view place) const;
  const Array& array(std::string_view place) const;
  const Object& object(std::string_view place) const;
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

  // Return the member of an object; if there is none, find() returns null and at() fails.
  const Json* find(std::string_view key, std::string_view place) const;
  const Json& at(std::string_view key, std::string_view place) const;

 private:
  friend class JsonBuilder;
  using Value = std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object>;
  explicit Json(Value value) : value_(std::move(value)) {}

  Value value_;
};

// One object of a manifest, read strictly: members are read by name, and an unknown member is an
// error. Every message names the object's location.
class Fields {
 public:
  // The known members; the `optional` ones may be left out or null.
  using Names = std::initializer_list<std::string_view>;
  Fields(const Json& value, std::string place, Names required, Names optional = {});

  const Json& at(std::string_view name) const { return value_.at(name, place_); }
  // Return the member; null if it is left out or null.
  const Json* given(std::string_view name) const;

  const std::string& text(std::string_view name) const { return at(name).string(place_of(name)); }
  int64_t integer(std::string_view name) const { return at(name).integer(place_of(name)); }
  const Json::Array& array(std::string_view name) const { return at(name).array(place_of(name)); }
  const Json::Object& object(std::string_view name) const {
    return at(name).object(place_of(name));
  }
  // Return a name of lower-case letters, digits and _ that begins with a letter.
  const std::string& name(std::string_view name) const;
  // Return a digest of 64 lower-case hexadecimal digits.
  const std::string& digest(std::string_view name) const;
  // Return a path inside the bundle: relative, of plain components, so that it cannot lead outside.
  const std::string& path(std::string_view name) const;
  std::optional<std::string> optional_text(std::string_view name) const;

  // Return a member's location for messages: "programs.library".
  std::string place_of(std::string_view name) const;

 private:
  const Json& value_;
  std::string place_;
};

// Return the text with the letters A to Z in lower case.
std::string in_lower_case(std::string text);

// Fail, naming the place, unless the text is a name by the rule of Fields::name.
void check_name(std::string_view text, std::string_view place);

// Fail, naming the place, unless the text is a path by the rule of Fields::path.
void check_inner_path(const std::string& path, std::string_view place);

}  // namespace menagerie
