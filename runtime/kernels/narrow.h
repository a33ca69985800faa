// Weights that are stored in half precision or as integers, for all folders of kernels.
#pragma once

#include "common/tensor.h"

namespace menagerie::kernels {

// Return whether the panel kernels read a weight [out, in, ...] as it is stored.
bool is_stored_narrower(const Tensor& weight);

// A function that makes one row of 6 places [6, in, width] of windows [9, in, width].
using TransformWindows = void(const float* windows, int64_t in, int64_t width, int64_t row,
                              float* to);

// Compute left[36, tiles, in] * transformed weights[36, in, out]: a panel of output channels is
// widened and transformed one row of places at a time, so that all of it stays in the cache.
void multiply_narrow_places(const Tensor& weight, int64_t tiles, const Tensor& left,
                            const Tensor& result, TransformWindows& transform);

}  // namespace menagerie::kernels
