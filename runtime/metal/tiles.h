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

inline constexpr int64_t kSmallTile = 32;  // the side of the smallest
// How many tiles of that side [batch, m, n] is, and a group of threads for each.
int64_t tiles_of(const ProductExtents& p, int64_t batch, int64_t tile);
Grid grid_of_tiles(const ProductExtents& p, int64_t batch, int64_t tile);

// Runs <function>_<dtype>_<side of a tile> of a file for each tile of [batch, m, n].
void dispatch_tiles(const std::string& file, const std::string& function,
                    const Arguments& arguments, const ProductExtents& p, int64_t batch,
                    Dtype dtype);

}  // namespace menagerie::metal
