// A depthwise convolution of a deeper image that another one makes, as in an inverted residual
// block (arXiv:1801.04381): a few rows of the expanded image at a time, of a few channels, stay in
// the cache.
#pragma once

#include "common/kernels.h"

namespace menagerie::x86 {

// Computes both where that is faster than one after the other; false, with nothing done, where they
// are to be computed so.
bool expanded_depthwise(const kernels::Expanded& call, const Tensor& output);

}  // namespace menagerie::x86
