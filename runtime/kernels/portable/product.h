// The blocked product that matrix products and convolutions share: they differ in how the left
// operand is packed and in where the result's rows are stored. The scheme is Goto's and van de
// Geijn's, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34 (2008); vector
// extensions serve AVX2 and NEON with one source.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/caches.h"
#include "common/shim_types.h"
#include "kernels/finish.h"

namespace menagerie::portable {

// Pack `width` columns of `depth` elements, at k * row + j * column, as one panel
// [depth, kTileColumns]; columns past the end are zero.
void pack_small_panel(const float* data, int64_t depth, int64_t width, int64_t row, int64_t column,
                      float* to);

// Pack rows of elements at i * row + k * column as panels [depth, kTileRows], like PackLeft.
void pack_rows(const float* data, int64_t rows, int64_t row, int64_t depth, int64_t column,
               float* to);

// A right operand [k, n] as tiles read it: blocks of kDepth, each with the panels of its columns.
class RightPanels : public Prepared {
 public:
  // Pack the elements at k * row + j * column.
  RightPanels(const float* data, int64_t depth, int64_t columns, int64_t row, int64_t column);

  int64_t depth() const { return depth_; }
  int64_t columns() const { return columns_; }
  // Return the panel with the columns from `panel` * kTileColumns on, for the block at `from`.
  const float* panel(int64_t from, int64_t panel) const { return &packed_[offset(from, panel)]; }
  size_t bytes() const override { return packed_.size() * sizeof(float); }

 private:
  // A block begins after all panels of the blocks before it.
  int64_t offset(int64_t from, int64_t panel) const;

  int64_t depth_, columns_;
  std::vector<float> packed_;
};

// A function that writes rows [first, first + rows) and columns [from, from + depth) of the left
// operand as consecutive panels [depth, kTileRows]; rows past the end are zero.
using PackLeft =
    std::function<void(int64_t first, int64_t rows, int64_t from, int64_t depth, float* to)>;

// One product of a call.
struct BlockedProduct {
  int64_t rows;
  PackLeft pack_left;
  std::shared_ptr<const RightPanels> right;
  Finish finish;
};

// Compute products of equal shapes, with their blocks shared out among the threads.
void run(const std::vector<BlockedProduct>& products);

// A tile's sums stay in registers: 12 of AVX2's 16, 24 of NEON's 32.
inline constexpr int64_t kTileRows = 6;
inline constexpr int64_t kTileColumns = 16;
// This much of a right panel stays in the first-level cache: 256 * 16 floats are 16 KiB.
inline constexpr int64_t kDepth = 256;
// This many rows of the left operand stay in the second level: 96 * 256 floats are 96 KiB.
inline constexpr int64_t kBlockRows = 96;
inline constexpr int64_t kBlockColumns = 256;

inline int64_t panels(int64_t extent, int64_t width) { return (extent + width - 1) / width; }

// Add left * right to sums[kTileRows, kTileColumns]. Left is packed [depth, kTileRows], right
// [depth, kTileColumns]; the sums' rows are `row` floats apart.
void multiply_tile(int64_t depth, const float* left, const float* right, float* sums, int64_t row);

}  // namespace menagerie::portable
