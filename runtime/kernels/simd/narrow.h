// Weights that are stored in half precision or as integers, for the panel kernels.
#pragma once

#include <optional>

#include "common/quantised.h"
#include "common/tensor.h"

namespace menagerie::simd {

// A matrix [taps, depth, columns]: each column is a stored row [depth, taps]; when turned (with one
// tap), each number of the depth is one.
struct NarrowWeight {
  const NarrowRows* stored;
  int64_t first;  // stored row
  int64_t columns, taps, depth;
  bool turned = false;

  int64_t numbers() const { return taps * depth; }  // of a column
};

// Return the form of a constant [columns, depth, ...]; none if it is stored as floats, or is so
// small that floats serve better.
std::optional<NarrowWeight> narrow_weight(const Tensor& weight);

// Return the number of floats that `widen_panel` needs besides a panel.
int64_t floats_of_pieces(const NarrowWeight& weight);

// Widen `columns` columns into a panel [taps, depth, width].
void widen_panel(const NarrowWeight& weight, int64_t first, int64_t columns, int64_t width,
                 float* pieces, float* to);

}  // namespace menagerie::simd
