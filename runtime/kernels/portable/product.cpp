#include "kernels/portable/product.h"

#include <algorithm>

#include "common/platform/threads.h"

namespace menagerie::portable {
namespace {

Float8 load(const float* from) {
  Float8 value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

void add_to(float* to, Float8 value) {
  value += load(to);
  __builtin_memcpy(to, &value, sizeof value);
}

}  // namespace

void multiply_tile(int64_t depth, const float* left, const float* right, float* sums, int64_t row) {
  Float8 low[kTileRows] = {};
  Float8 high[kTileRows] = {};
  for (int64_t k = 0; k < depth; ++k) {
    const Float8 first = load(right + k * kTileColumns);
    const Float8 second = load(right + k * kTileColumns + 8);
#pragma GCC unroll 6
    for (int64_t i = 0; i < kTileRows; ++i) {
      const float factor = left[k * kTileRows + i];
      low[i] += factor * first;
      high[i] += factor * second;
    }
  }
#pragma GCC unroll 6
  for (int64_t i = 0; i < kTileRows; ++i) {
    add_to(sums + i * row, low[i]);
    add_to(sums + i * row + 8, high[i]);
  }
}

namespace {

// The memory that a thread needs for a block.
struct Workspace {
  std::vector<float> left = std::vector<float>(kBlockRows * kDepth);
  std::vector<float> sums = std::vector<float>(kBlockRows * kBlockColumns);
};

void compute_block(const BlockedProduct& product, int64_t first_row, int64_t first_column,
                   Workspace& work) {
  const RightPanels& right = *product.right;
  const int64_t rows = std::min(kBlockRows, product.rows - first_row);
  const int64_t columns = std::min(kBlockColumns, right.columns() - first_column);
  std::fill(work.sums.begin(), work.sums.end(), 0.0F);
  for (int64_t from = 0; from < right.depth(); from += kDepth) {
    const int64_t depth = std::min(kDepth, right.depth() - from);
    product.pack_left(first_row, rows, from, depth, work.left.data());
    for (int64_t column = 0; column < columns; column += kTileColumns) {
      const float* panel = right.panel(from, (first_column + column) / kTileColumns);
      for (int64_t row = 0; row < rows; row += kTileRows) {
        multiply_tile(depth, &work.left[row * depth], panel,
                      &work.sums[row * kBlockColumns + column], kBlockColumns);
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    product.finish.store(first_row + row, first_column, columns, &work.sums[row * kBlockColumns]);
  }
}

}  // namespace

void pack_small_panel(const float* data, int64_t depth, int64_t width, int64_t row, int64_t column,
                      float* to) {
  for (int64_t k = 0; k < depth; ++k, data += row, to += kTileColumns) {
    for (int64_t j = 0; j < width; ++j) to[j] = data[j * column];
    std::fill(to + width, to + kTileColumns, 0.0F);
  }
}

void pack_rows(const float* data, int64_t rows, int64_t row, int64_t depth, int64_t column,
               float* to) {
  for (int64_t begin = 0; begin < rows; begin += kTileRows, to += depth * kTileRows) {
    const int64_t here = std::min(kTileRows, rows - begin);
    if (here < kTileRows) std::fill(to, to + depth * kTileRows, 0.0F);
    for (int64_t i = 0; i < here; ++i) {
      const float* source = data + (begin + i) * row;
      for (int64_t k = 0; k < depth; ++k) to[k * kTileRows + i] = source[k * column];
    }
  }
}

RightPanels::RightPanels(const float* data, int64_t depth, int64_t columns, int64_t row,
                         int64_t column)
    : depth_(depth),
      columns_(columns),
      packed_(static_cast<size_t>(depth * panels(columns, kTileColumns) * kTileColumns)) {
  threads::for_each(panels(columns, kTileColumns), 4, [&](int64_t number) {
    const int64_t begin = number * kTileColumns;
    const int64_t width = std::min(kTileColumns, columns - begin);
    for (int64_t k = 0; k < depth; k += kDepth) {
      pack_small_panel(data + k * row + begin * column, std::min(kDepth, depth - k), width, row,
                       column, &packed_[offset(k, number)]);
    }
  });
}

int64_t RightPanels::offset(int64_t from, int64_t panel) const {
  const int64_t depth = std::min(kDepth, depth_ - from);
  return (from * panels(columns_, kTileColumns) + panel * depth) * kTileColumns;
}

void run(const std::vector<BlockedProduct>& products) {
  if (products.empty()) return;
  const int64_t row_blocks = panels(products[0].rows, kBlockRows);
  const int64_t column_blocks = panels(products[0].right->columns(), kBlockColumns);
  const int64_t blocks = row_blocks * column_blocks;
  threads::share_out(products.size() * static_cast<size_t>(blocks), 1, [&](threads::Tasks& left) {
    Workspace work;
    for (size_t next = 0, end = 0; left.take(next, end);) {
      const auto task = static_cast<int64_t>(next);
      const int64_t block = task % blocks;
      compute_block(products[task / blocks], block / column_blocks * kBlockRows,
                    block % column_blocks * kBlockColumns, work);
    }
  });
}

}  // namespace menagerie::portable
