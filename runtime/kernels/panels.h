// The layout of panels of columns for the panel kernels: [depth, width], with zeros past the last
// column.
#pragma once

#include <cstdint>
#include <span>

namespace menagerie::kernels {

// The location of a matrix [depth, columns], in floats from one number to the next.
struct MatrixView {
  const float* data;
  int64_t row;     // to the next step of the depth
  int64_t column;  // to the next column
};

// `count` matrices of one weight, with floats from each to the next, and from panel to panel.
struct Taps {
  int64_t count = 1, from = 0, to = 0;
};

// Copy `columns` columns into a panel of that width, for each tap.
void pack_panel(const MatrixView& from, int64_t depth, int64_t columns, int64_t width, float* to,
                const Taps& taps = {});

// How weights are read as [columns, taps, depth]: a product sums over all taps.
struct PanelLayout {
  int64_t columns, taps, depth;
  int64_t column, tap, step;  // floats to the next of each
};

// The destination of some columns: [taps, depth, width], with `tap` floats to the next tap, and
// zeros where there is no weight.
struct PanelPlace {
  int64_t first, columns, width, tap;
  float* to;
};

// Pack weights panel by panel, into memory that has not been written to.
void pack_panels(const float* weights, const PanelLayout& layout,
                 std::span<const PanelPlace> places);

}  // namespace menagerie::kernels
