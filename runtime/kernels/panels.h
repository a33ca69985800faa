// How panels of columns are laid out for the panel kernels: [depth, width], what lies past the last
// column zero.
#pragma once

#include <cstdint>
#include <span>

namespace menagerie::kernels {

// Where a matrix [depth, columns] lies, in floats from one number to the next.
struct MatrixView {
  const float* data;
  int64_t row;     // to the next of the depth
  int64_t column;  // to the next column
};

// So many matrices of one weight, and floats from each to the next, and from panel to panel.
struct Taps {
  int64_t count = 1, from = 0, to = 0;
};

// Copies so many columns into a panel of that width, of each tap.
void pack_panel(const MatrixView& from, int64_t depth, int64_t columns, int64_t width, float* to,
                const Taps& taps = {});

// How weights are read as [columns, taps, depth]: a product sums up all taps.
struct PanelLayout {
  int64_t columns, taps, depth;
  int64_t column, tap, step;  // floats to the next of each
};

// Where some columns go: [taps, depth, width], with `tap` floats to the next tap, zero where
// there is no weight.
struct PanelPlace {
  int64_t first, columns, width, tap;
  float* to;
};

// Packs weights panel by panel, in memory that has not been written to.
void pack_panels(const float* weights, const PanelLayout& layout,
                 std::span<const PanelPlace> places);

}  // namespace menagerie::kernels
