// The windows of convolutions and of pooling over images and volumes: checked arguments, and the
// elements that each element of a result reads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor.h"

namespace menagerie {

inline constexpr size_t kMaxSpatial = 3;

struct ConvolutionParameters {
  size_t spatial = 2;  // axes that the window moves along
  std::array<int64_t, kMaxSpatial> stride{1, 1, 1};
  std::array<int64_t, kMaxSpatial> padding{};
  std::array<int64_t, kMaxSpatial> dilation{1, 1, 1};
  std::array<int64_t, kMaxSpatial> output_padding{};
  bool transposed = false;
  int64_t groups = 1;
};

// A call's arguments besides its operands: one number for all axes, or one for each.
struct ConvolutionNumbers {
  std::span<const int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

// Fail if the numbers do not fit an input [N, C, ...] of one to three axes, or one another.
ConvolutionParameters convolution_parameters(const Tensor& input,
                                             const ConvolutionNumbers& numbers);

// Return the sizes of the result; fail unless the operands fit.
std::vector<int64_t> convolution_sizes(const Tensor& input, const Tensor& weight,
                                       const Tensor* bias, const ConvolutionParameters& parameters);

// Set every element of the output to its channel's bias, or zero.
void fill_with_bias(const Tensor& output, const Tensor* bias);

// The range of one axis, within the input, that an output element reads, and the length of the
// whole window including its part in the padding.
struct WindowExtent {
  int64_t first;
  int64_t end;
  int64_t step;
  int64_t padded_length;
};

// One axis of a pooling operation.
struct PooledAxis {
  int64_t input = 1, output = 1;
  int64_t window = 1, stride = 1, padding = 0, dilation = 1;
  bool adaptive = false;  // the windows divide the axis into `output` parts

  WindowExtent extent(int64_t position) const;
};

// Planes of depth, height and width; images have depth 1.
struct Windows {
  Tensor input;  // [N, C, depth, height, width]
  std::array<PooledAxis, 3> axes;
  int32_t spatial = 2;  // number of axes that the operator names
};

// How an operator slides its windows: numbers for each axis, or one for all; without a stride, it
// is the window's length.
struct PoolingNumbers {
  std::span<const int64_t> window, stride, padding, dilation;
  bool ceil_mode = false;
};

// Return windows over the last `spatial` axes, 2 or 3, of a tensor [N, C, ...] or [C, ...]; fail if
// the numbers do not fit.
Windows sliding_windows(const Tensor& self, int32_t spatial, const PoolingNumbers& given);
Windows adaptive_windows(const Tensor& self, std::span<const int64_t> output_size);

// The geometry of a result for such a tensor: its number of axes, and its layout.
struct PooledGeometry {
  Extents sizes;
  Extents strides;
};
PooledGeometry pooled_geometry(const Tensor& self, const Windows& windows);

// Return a tensor [N, C, ...] or [C, ...] as [N, C, depth, height, width].
Tensor as_volumes(const Tensor& tensor, int32_t spatial);

}  // namespace menagerie
