#include "common/x86/panel_packing.h"

#include <immintrin.h>

#include <algorithm>

namespace menagerie::x86 {
namespace {

constexpr int64_t kSquare = 4;

// to[i * to_row + j] = from[j * from_row + i], of four by four floats.
void transpose_square(const float* from, int64_t from_row, float* to, int64_t to_row) {
  __m128 row[kSquare];
  for (int64_t i = 0; i < kSquare; ++i) row[i] = _mm_loadu_ps(from + i * from_row);
  _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
  for (int64_t i = 0; i < kSquare; ++i) _mm_storeu_ps(to + i * to_row, row[i]);
}

// A panel [depth, width] of columns that are dense in memory; columns past the last are nought.
// Squares go from the last column down, and the first begins at nought: it may write some twice.
void pack_columns(const float* from, int64_t column, int64_t depth, int64_t columns, int64_t width,
                  float* to) {
  const int64_t deep = columns < kSquare ? 0 : depth / kSquare * kSquare;
  for (int64_t left = columns; left > 0 && deep > 0; left -= kSquare) {
    const int64_t j = std::max<int64_t>(left - kSquare, 0);
    for (int64_t k = 0; k < deep; k += kSquare) {
      transpose_square(from + j * column + k, column, to + k * width + j, width);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t j = k < deep ? columns : 0; j < columns; ++j) {
      to[k * width + j] = from[j * column + k];
    }
    std::fill(to + k * width + columns, to + (k + 1) * width, 0.0F);
  }
}

// The same of rows that are dense in memory.
void pack_rows(const float* from, int64_t row, int64_t depth, int64_t columns, int64_t width,
               float* to) {
  for (int64_t k = 0; k < depth; ++k, to += width) {
    std::copy_n(from + k * row, columns, to);
    std::fill(to + columns, to + width, 0.0F);
  }
}

// Of any strides.
void pack_scattered(const Laid& from, int64_t depth, int64_t columns, int64_t width, float* to) {
  for (int64_t k = 0; k < depth; ++k, to += width) {
    const float* row = from.data + k * from.row;
    for (int64_t j = 0; j < columns; ++j) to[j] = row[j * from.column];
    std::fill(to + columns, to + width, 0.0F);
  }
}

}  // namespace

void pack_panel(const Laid& from, int64_t depth, int64_t columns, int64_t width, float* to) {
  if (from.column == 1) return pack_rows(from.data, from.row, depth, columns, width, to);
  if (from.row == 1) return pack_columns(from.data, from.column, depth, columns, width, to);
  pack_scattered(from, depth, columns, width, to);
}

}  // namespace menagerie::x86
