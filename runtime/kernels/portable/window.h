// A convolution's geometry with three spatial axes always, missing ones of one element.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/portable/finish.h"

namespace menagerie::portable {

inline constexpr size_t kSpatial = kMaxSpatial;
using Spatial = std::array<int64_t, kSpatial>;

// A tensor [batch, channels, ...] or weight [out, in, ...].
struct Image {
  const float* data;
  std::array<int64_t, 2> size{}, stride{};
  Spatial extent{1, 1, 1}, step{};

  explicit Image(const Tensor& tensor);
};

// What a convolution reads for each output and tap, a tap being one element of the window.
class Window {
 public:
  Window(const Image& input, const Spatial& output, const Image& weight,
         const ConvolutionParameters& parameters);

  int64_t taps() const { return window_[0] * window_[1] * window_[2]; }
  // Where the input of the output at `index` ([batch, ...]) lies for a tap, without the channel;
  // -1 where the window leaves the input.
  int64_t input_offset(const std::array<int64_t, Rows::kAxes>& index, int64_t tap) const;
  // Where a tap lies in a weight.
  int64_t weight_offset(int64_t tap) const;

 private:
  Spatial split(int64_t tap) const;

  Spatial window_;
  Spatial weight_step_;
  int64_t batch_stride_;
  std::array<std::vector<int64_t>, kSpatial> offsets_;  // [output, tap] of each axis
};

// The rows of an output [batch, channels, ...]: one each batch and position.
Rows rows_of(const Tensor& output);

// Whether every channel is convolved alone, and not transposed.
bool is_depthwise(const Image& input, const Image& weight, const ConvolutionParameters& parameters);

// finish(input * weight) for such a convolution.
void depthwise(const Image& input, const Tensor& weight, const Window& window,
               const Finish& finish);

}  // namespace menagerie::portable
