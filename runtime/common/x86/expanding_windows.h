// What windows larger than a pixel make of rows of an image, of which few numbers make a result.
#pragma once

#include <memory>

#include "common/x86/expanding.h"

namespace menagerie::x86 {

// Null where the weight does not lie as the kernels want it.
std::unique_ptr<Expander> window_expander(const kernels::Expanded& call, const Finish& finish);

}  // namespace menagerie::x86
