// One object of a manifest, read strictly: what it holds is asked for by name, and a member that
// nobody knows is an error. Every message names the object's place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "common/json.h"

namespace menagerie {

class Fields {
 public:
  // The known members; those behind `optional` may be left out or null.
  using Names = std::initializer_list<std::string_view>;
  Fields(const Json& value, std::string place, Names required, Names optional = {});

  const Json& at(std::string_view name) const { return value_.at(name, place_); }
  // The member, or null where it is left out or null.
  const Json* given(std::string_view name) const;

  const std::string& text(std::string_view name) const { return at(name).string(place_of(name)); }
  int64_t integer(std::string_view name) const { return at(name).integer(place_of(name)); }
  const Json::Array& array(std::string_view name) const { return at(name).array(place_of(name)); }
  const Json::Object& object(std::string_view name) const {
    return at(name).object(place_of(name));
  }
  // Lower-case letters, digits and _, first a letter.
  const std::string& name(std::string_view name) const;
  // 64 lower-case hexadecimal digits.
  const std::string& digest(std::string_view name) const;
  // A path inside the bundle: relative, of plain components, so that it cannot leave the folder.
  const std::string& path(std::string_view name) const;
  std::optional<std::string> optional_text(std::string_view name) const;

  // "programs.library", for messages.
  std::string place_of(std::string_view name) const;

 private:
  const Json& value_;
  std::string place_;
};

// With the letters A to Z as a to z.
std::string in_lower_case(std::string text);

// Fails, naming the place, unless the text is a name as Fields::name has them.
void check_name(std::string_view text, std::string_view place);

// Fails, naming the place, unless the text is a path as Fields::path has them.
void check_inner_path(const std::string& path, std::string_view place);

}  // namespace menagerie
