// The headers of prelude/ in one text, as the build has put them together.
#pragma once

#include <string_view>

namespace menagerie::metal::emulated {

std::string_view prelude();

}  // namespace menagerie::metal::emulated
