// Packed panels and the product of one tile, the innermost loop of every heavy operator here. Goto
// and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34 (2008), is the
// scheme; vector extensions serve AVX2 and NEON with one text.
#pragma once

#include <cstdint>

#include "common/shim_types.h"

namespace menagerie::portable {

// A tile's sums stay in registers: 12 of AVX2's 16, 24 of NEON's 32.
inline constexpr int64_t kTileRows = 6;
inline constexpr int64_t kTileColumns = 16;
// So much of a right panel stays in the first-level cache: 256 * 16 floats are 16 KiB.
inline constexpr int64_t kDepth = 256;
// So many rows of the left operand stay in the second level: 96 * 256 floats are 96 KiB.
inline constexpr int64_t kBlockRows = 96;
inline constexpr int64_t kBlockColumns = 256;

inline int64_t panels(int64_t extent, int64_t width) { return (extent + width - 1) / width; }

// sums[kTileRows, kTileColumns] += left * right. Left is packed [depth, kTileRows], right
// [depth, kTileColumns]; the sums' rows are `row` floats apart.
void multiply_tile(int64_t depth, const float* left, const float* right, float* sums, int64_t row);

}  // namespace menagerie::portable
