// What wrappers are compiled behind; precompiled with MENAGERIE_DEVICE, torch's header of a device.
//
// Torch reads the name of a device by std::regex, in an inline function that the interface calls
// and wrappers do not. A compiler instantiates what it needs all the same, anew for each wrapper:
// half of the time that a small one takes. So it is declared here, and nothing more.
#pragma once

#include <regex>

namespace std {

struct menagerie_match {
  sub_match<string::const_iterator> operator[](size_t group) const;
};
struct menagerie_regex {
  explicit menagerie_regex(const char* pattern);
};
bool menagerie_regex_match(const string& text, menagerie_match& found, const menagerie_regex&);

}  // namespace std

#define regex menagerie_regex
#define regex_match menagerie_regex_match
#define smatch menagerie_match
#include MENAGERIE_DEVICE
#undef regex
#undef regex_match
#undef smatch
