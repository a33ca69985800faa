// The arguments of convolutions, checked.
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

// What a call says beside its operands: one number for all axes, or one for each.
struct ConvolutionNumbers {
  std::span<const int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};

// Fails if the numbers do not fit an input [N, C, ...] of one to three axes, or one another.
ConvolutionParameters convolution_parameters(const Tensor& input,
                                             const ConvolutionNumbers& numbers);

// The sizes of the result; fails unless the operands fit.
std::vector<int64_t> convolution_sizes(const Tensor& input, const Tensor& weight,
                                       const Tensor* bias, const ConvolutionParameters& parameters);

// Every element of the output becomes its channel's bias, or nought.
void fill_with_bias(const Tensor& output, const Tensor* bias);

}  // namespace menagerie
