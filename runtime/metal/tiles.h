// Products whose results are computed tile by tile, a group of threads each (kernels/tiles.h).
#pragma once

#include <string>

#include "common/tensor.h"
#include "metal/dispatch.h"

namespace menagerie::metal {

// For a GPU to be busy: four for each of the eight cores of an M1.
inline constexpr int64_t kEnoughGroups = 32;

// As the kernels have them.
struct ProductExtents {
  int64_t m, n, k;
  float alpha, beta;
};
struct MatrixStrides {
  int64_t batch = 0, row = 0, column = 0;
};
// Those of [B, M, N]; nought along an axis of one element.
MatrixStrides strides_of(const Tensor& matrices);

// Runs <function>_<dtype>_<side of a tile> of a file for each tile of [batch, m, n].
void dispatch_tiles(const std::string& file, const std::string& function,
                    const Arguments& arguments, const ProductExtents& p, int64_t batch,
                    Dtype dtype);

}  // namespace menagerie::metal
