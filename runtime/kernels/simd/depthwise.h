// Depthwise convolutions, one row of results after another.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/caches.h"
#include "common/tensor.h"
#include "kernels/simd/kernels.h"

namespace menagerie::simd {

// The windows of a depthwise convolution as [y, x, channels].
struct PackedWindows : Prepared {
  explicit PackedWindows(const Tensor& weight);
  size_t bytes() const override { return values.size() * sizeof(float); }

  std::vector<float> values;
};

// Return the windows of a constant weight [channels, 1, height, width], packed once.
std::shared_ptr<PackedWindows> packed_windows(const Tensor& weight);

// The places of a window along an axis that lie in the image, if it begins at `at`.
struct WindowRange {
  WindowRange(int64_t at, int64_t step, int64_t window, int64_t size);
  int64_t count() const { return last > first ? last - first : 0; }
  bool operator==(const WindowRange&) const = default;

  int64_t first, last;
};

// Neighbouring results of a row whose windows lie in the image to the same extent.
struct ResultRun {
  int64_t first, count;
  WindowRange across;
};

// Return a row of `results` in runs of at most kMostWindows, for an image and windows this wide.
std::vector<ResultRun> result_runs(const ConvolutionParameters& parameters, int64_t image,
                                   int64_t window, int64_t results);

// Neighbouring channels of an image, and where their results go. Steps are in floats; channels are
// dense.
struct RowConvolution {
  const float* input;  // row y of the image is held at y % rows_held, if a window reaches it
  int64_t rows_held;
  int64_t input_row, input_column;
  int64_t height;  // of the image
  const float* windows;
  int64_t windows_column;  // to the next place of the window: all channels
  int64_t window_height, window_width;
  const float* bias;  // null for none
  float* output;      // of the first row
  int64_t output_row, output_column;
  std::span<const ResultRun> across;  // of a row of results
  int64_t channels;
  const ConvolutionParameters& parameters;
  const Finish& finish;
};

// Compute row `y` of the results.
void slide_row(const RowConvolution& row, int64_t y);

// Return whether `slide_row` computes a convolution of images with `channels` channels, each with
// its own window: the weight is a constant, and the channels of the results are dense.
bool is_depthwise(int64_t channels, const Tensor& weight, const ConvolutionParameters& p,
                  const Tensor& output);

}  // namespace menagerie::simd
