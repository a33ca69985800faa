// Products of few rows with a packed operand, by the panel kernels of convolutions.
#include "common/kernels.h"
#include "common/x86/kernels.h"
#include "common/x86/panel_packing.h"

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
    x86::pack_panel({b + first * column, row, column}, depth_, columns, kernel.width, to);
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
