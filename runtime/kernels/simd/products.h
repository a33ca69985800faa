// Constant weights, packed for the panel kernels, and products of rows with them. Rows are packed
// too where a tile has more of them than a set of the first-level cache has lines.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/caches.h"
#include "common/context.h"
#include "common/platform/threads.h"
#include "common/tensor.h"
#include "kernels/panels.h"
#include "kernels/simd/kernels.h"
#include "kernels/simd/narrow.h"

namespace menagerie::simd {

using kernels::PanelLayout;

// Columns that one kernel multiplies by, and where their weights are.
struct Panel {
  const PanelKernel* kernel;
  int64_t first, columns;
  const float* weights;
};

// Weights, panel by panel.
class PackedPanels : public Prepared {
 public:
  PackedPanels(const float* weights, const PanelLayout& layout);
  explicit PackedPanels(const NarrowWeight& weight);

  size_t bytes() const override { return bytes_; }
  std::span<const Panel> panels() const { return panels_; }
  int64_t columns() const { return panels_.back().first + panels_.back().columns; }

 private:
  size_t bytes_;
  std::shared_ptr<float> memory_;
  std::vector<Panel> panels_;
};

// Return the panels of a constant weight, packed once.
std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight, const PanelLayout& layout);
// Return the same for a weight [columns, depth] or [columns, depth, 1, 1].
std::shared_ptr<PackedPanels> packed_panels(const Tensor& weight);

// Return the elements from one pixel to the next, if the pixels of a batch of images are rows of a
// matrix with dense channels; else nothing.
std::optional<int64_t> row_of_pixels(const Tensor& images);

// Return whether a convolution multiplies each pixel by one constant matrix.
bool is_pointwise(const Tensor& weight, const ConvolutionParameters& parameters);

// output[rows, columns] = finish(input[rows, depth] * weights + bias). Rows of the input may
// overlap, as windows of a sequence do.
struct RowsProduct {
  const float* input;
  int64_t input_row;
  const float* bias;  // null for none
  float* output;
  int64_t output_row;
  int64_t rows, depth;
};

// Return whether the rows are enough to be divided among all threads.
bool takes_many_rows(int64_t rows);

void multiply_all_rows(const RowsProduct& product, const PackedPanels& weights,
                       const Finish& finish);

// Call work(task, memory) for each of `tasks` on several threads, each with floats of its own.
template <class Work>
void for_each_task(int64_t tasks, int64_t floats, const Work& work) {
  const int64_t sizes[] = {std::min<int64_t>(Context::current().threads(), tasks), floats};
  const Tensor memory = empty_contiguous(Dtype::kFloat32, sizes);
  std::atomic<int64_t> workers = 0;
  threads::share_out(static_cast<size_t>(tasks), 1, [&](threads::Tasks& left) {
    float* own = memory.data<float>() + workers++ * floats;
    for (size_t next = 0, end = 0; left.take(next, end);) work(static_cast<int64_t>(next), own);
  });
}

}  // namespace menagerie::simd
