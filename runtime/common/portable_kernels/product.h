// The blocked product that matrix products and convolutions share: they differ in how the left
// operand is packed and in where the result's rows lie.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "common/kernel_cache.h"
#include "common/portable_kernels/finish.h"
#include "common/portable_kernels/tile.h"

namespace menagerie::portable {

// Packs `width` columns of `depth` elements, at k * row + j * column, as one panel
// [depth, kTileColumns]; columns past the end are nought.
void pack_panel(const float* data, int64_t depth, int64_t width, int64_t row, int64_t column,
                float* to);

// Packs rows of elements at i * row + k * column as panels [depth, kTileRows], as PackLeft says.
void pack_rows(const float* data, int64_t rows, int64_t row, int64_t depth, int64_t column,
               float* to);

// A right operand [k, n] as tiles read it: blocks of kDepth, in each the panels of its columns.
class RightPanels : public Prepared {
 public:
  // Packs the elements at k * row + j * column.
  RightPanels(const float* data, int64_t depth, int64_t columns, int64_t row, int64_t column);

  int64_t depth() const { return depth_; }
  int64_t columns() const { return columns_; }
  // The panel that holds the columns from `panel` * kTileColumns on, for the block at `from`.
  const float* panel(int64_t from, int64_t panel) const { return &packed_[offset(from, panel)]; }
  size_t bytes() const override { return packed_.size() * sizeof(float); }

 private:
  // A block begins after all panels of the blocks before it.
  int64_t offset(int64_t from, int64_t panel) const;

  int64_t depth_, columns_;
  std::vector<float> packed_;
};

// Writes rows [first, first + rows) and columns [from, from + depth) of the left operand as panels
// [depth, kTileRows], one after the other; rows past the end are nought.
using PackLeft =
    std::function<void(int64_t first, int64_t rows, int64_t from, int64_t depth, float* to)>;

// One product of a call.
struct BlockedProduct {
  int64_t rows;
  PackLeft pack_left;
  std::shared_ptr<const RightPanels> right;
  Finish finish;
};

// Computes products of equal shapes, their blocks shared out among the threads.
void run(const std::vector<BlockedProduct>& products);

}  // namespace menagerie::portable
