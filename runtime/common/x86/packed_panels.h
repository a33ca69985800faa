// Constant weights, packed for the panel kernels, and pixels as rows.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/kernel_cache.h"
#include "common/tensor.h"
#include "common/x86/kernels.h"

namespace menagerie::x86 {

// Columns that one kernel multiplies with, and where their weights lie.
struct Panel {
  const PanelKernel* kernel;
  int64_t first, columns;
  const float* weights;
};

// How weights are read as [columns, taps, depth]: a product sums up all taps.
struct PanelLayout {
  int64_t columns, taps, depth;
  int64_t column, tap, step;  // floats to the next of each
};

// Where some columns go: [taps, depth, width], with `tap` floats to the next tap, nought where
// there is no weight.
struct PanelPlace {
  int64_t first, columns, width, tap;
  float* to;
};

// Packs weights panel by panel, in memory nobody has written to before.
void pack_panels(const float* weights, const PanelLayout& layout,
                 std::span<const PanelPlace> places);

// Weights, panel by panel.
class PackedPanels : public Prepared {
 public:
  PackedPanels(const float* weights, const PanelLayout& layout);

  size_t bytes() const override { return bytes_; }
  std::span<const Panel> panels() const { return panels_; }
  int64_t columns() const { return panels_.back().first + panels_.back().columns; }

 private:
  size_t bytes_;
  std::shared_ptr<float> memory_;
  std::vector<Panel> panels_;
};

// Those of a constant weight, packed once.
std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight, const PanelLayout& layout);
// The same of a weight [columns, depth] or [columns, depth, 1, 1].
std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight);

// The pixels of a batch of images as rows of a matrix with dense channels: elements from one to the
// next; nothing where they do not lie so.
std::optional<int64_t> row_of_pixels(const Tensor& images);

// Whether a convolution multiplies each pixel by one constant matrix.
bool is_pointwise(const Tensor& weight, const kernels::ConvolutionParameters& parameters);

}  // namespace menagerie::x86
