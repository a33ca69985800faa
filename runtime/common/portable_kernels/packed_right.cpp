// Products of few rows with a packed operand, tile by tile.
#include <algorithm>
#include <vector>

#include "common/portable_kernels/product.h"

namespace menagerie::kernels {

using namespace menagerie::portable;

int64_t PackedRight::size() const { return depth_ * panels(columns_, kTileColumns) * kTileColumns; }

void PackedRight::pack(const float* b, int64_t row, int64_t column, float* to) const {
  for (int64_t begin = 0; begin < columns_; begin += kTileColumns) {
    pack_panel(b + begin * column, depth_, std::min(kTileColumns, columns_ - begin), row, column,
               to + begin * depth_);
  }
}

void PackedRight::multiply(const float* a, int64_t a_row, int64_t rows, const float* packed,
                           float* c, int64_t c_row) const {
  thread_local std::vector<float> left;
  left.resize(static_cast<size_t>(depth_ * kTileRows));
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t here = std::min(kTileRows, rows - first);
    pack_rows(a + first * a_row, here, a_row, depth_, 1, left.data());
    for (int64_t begin = 0; begin < columns_; begin += kTileColumns) {
      float sums[kTileRows * kTileColumns] = {};
      multiply_tile(depth_, left.data(), packed + begin * depth_, sums, kTileColumns);
      const int64_t count = std::min(kTileColumns, columns_ - begin);
      for (int64_t i = 0; i < here; ++i) {
        std::copy_n(sums + i * kTileColumns, count, c + (first + i) * c_row + begin);
      }
    }
  }
}

}  // namespace menagerie::kernels
