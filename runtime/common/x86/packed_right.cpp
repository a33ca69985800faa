// Products of few rows with a packed operand, by the panel kernels of convolutions.
#include <immintrin.h>

#include <algorithm>

#include "common/kernels.h"
#include "common/x86/kernels.h"

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
void pack_columns(const float* from, int64_t column, int64_t depth, int64_t columns, int64_t width,
                  float* to) {
  const int64_t squares = columns / kSquare * kSquare, deep = depth / kSquare * kSquare;
  for (int64_t j = 0; j < squares; j += kSquare) {
    for (int64_t k = 0; k < deep; k += kSquare) {
      transpose_square(from + j * column + k, column, to + k * width + j, width);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t j = k < deep ? squares : 0; j < columns; ++j) {
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

}  // namespace
}  // namespace menagerie::x86

namespace menagerie::kernels {

using x86::each_panel;
using x86::PanelKernel;

int64_t PackedRight::size() const {
  int64_t width = 0;
  each_panel(columns_, [&](const PanelKernel& kernel, int64_t, int64_t) { width += kernel.width; });
  return depth_ * width;
}

void PackedRight::pack(const float* b, int64_t row, int64_t column, float* to) const {
  each_panel(columns_, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    if (column == 1) {
      x86::pack_rows(b + first, row, depth_, columns, kernel.width, to);
    } else {
      x86::pack_columns(b + first * column, column, depth_, columns, kernel.width, to);
    }
    to += depth_ * kernel.width;
  });
}

void PackedRight::multiply(const float* a, int64_t a_row, int64_t rows, const float* packed,
                           float* c, int64_t c_row) const {
  each_panel(columns_, [&](const PanelKernel& kernel, int64_t first, int64_t columns) {
    x86::multiply_rows(kernel, {a, a_row, packed, nullptr, c + first, c_row, depth_, rows, columns},
                       {});
    packed += depth_ * kernel.width;
  });
}

}  // namespace menagerie::kernels
