#include "common/windows.h"

#include <algorithm>

#include "common/error.h"

namespace menagerie {
namespace {

using Numbers = std::span<const int64_t>;

int64_t one_of(Numbers numbers, int32_t axis, int32_t axes, int64_t otherwise) {
  if (numbers.empty()) return otherwise;
  require(numbers.size() == 1 || static_cast<int32_t>(numbers.size()) == axes, "a window takes ",
          axes, " numbers or one, not ", numbers.size());
  return numbers[numbers.size() == 1 ? 0 : static_cast<size_t>(axis)];
}

// Output size of a sliding window (aten/src/ATen/native/Pool.h, pooling_output_shape).
int64_t slide(const PooledAxis& axis, bool ceil_mode) {
  const int64_t reach = axis.dilation * (axis.window - 1) + 1;
  const int64_t room = axis.input + 2 * axis.padding - reach + (ceil_mode ? axis.stride - 1 : 0);
  require(room >= 0, "the window of ", axis.window, " is larger than the input's ", axis.input);
  const int64_t size = room / axis.stride + 1;
  const bool hangs_over = ceil_mode && (size - 1) * axis.stride >= axis.input + axis.padding;
  return hangs_over ? size - 1 : size;
}

constexpr int64_t kLongest = int64_t{1} << 24;  // so that no product of these numbers overflows

PooledAxis sliding_axis(int64_t input, int32_t axis, int32_t axes, const Sliding& sliding) {
  PooledAxis result{.input = input, .window = one_of(sliding.window, axis, axes, 0)};
  result.stride = one_of(sliding.stride, axis, axes, result.window);
  result.padding = one_of(sliding.padding, axis, axes, 0);
  result.dilation = one_of(sliding.dilation, axis, axes, 1);
  require(result.window >= 1 && result.stride >= 1 && result.dilation >= 1 && result.padding >= 0 &&
              result.padding <= result.window / 2 && result.window <= kLongest &&
              result.stride <= kLongest && result.dilation <= kLongest && input <= kLongest,
          "window ", result.window, ", stride ", result.stride, ", padding ", result.padding,
          " and dilation ", result.dilation, " do not fit together");
  require(result.padding == 0 || result.dilation <= input, "between the points of a window of ",
          result.window, " with dilation ", result.dilation, " lies the whole input of ", input);
  result.output = slide(result, sliding.ceil_mode);
  return result;
}

}  // namespace

Stretch PooledAxis::stretch(int64_t position) const {
  if (adaptive) {
    const int64_t first = position * input / output;
    const int64_t end = ((position + 1) * input + output - 1) / output;
    return {first, end, 1, end - first};
  }
  const int64_t start = position * stride - padding;
  const int64_t reach = start + dilation * (window - 1) + 1;
  // The first point of the window that lies inside.
  const int64_t first = start < 0 ? start + (-start + dilation - 1) / dilation * dilation : start;
  const int64_t within = std::min(start + window, input + padding);
  return {first, std::min(reach, input), dilation, within - start};
}

Tensor as_volumes(const Tensor& tensor, int32_t spatial) {
  require(tensor.dimensions == spatial + 1 || tensor.dimensions == spatial + 2,
          "the input must have ", spatial + 1, " or ", spatial + 2, " axes, not ", tensor);
  Tensor view = tensor;
  view.dimensions = 5;
  view.size.fill(1);
  view.stride.fill(0);
  const auto place = [&](int32_t target, int32_t source) {
    view.size[target] = tensor.size[source];
    view.stride[target] = tensor.stride[source];
  };
  const int32_t channels = tensor.dimensions - spatial - 1;
  if (channels == 1) place(0, 0);
  place(1, channels);
  for (int32_t axis = 0; axis < spatial; ++axis) place(5 - spatial + axis, channels + 1 + axis);
  return view;
}

Windows sliding_windows(const Tensor& self, int32_t spatial, const Sliding& sliding) {
  Windows windows{as_volumes(self, spatial), {}, spatial};
  for (int32_t axis = 0; axis < spatial; ++axis) {
    const int32_t place = 3 - spatial + axis;
    windows.axes[place] = sliding_axis(windows.input.size[2 + place], axis, spatial, sliding);
  }
  return windows;
}

Windows adaptive_windows(const Tensor& self, Numbers output_size) {
  require(output_size.size() == 2, "the output size must be two numbers");
  Windows windows{as_volumes(self, 2), {}, 2};
  for (int32_t place = 1; place < 3; ++place) {
    const int64_t input = windows.input.size[2 + place];
    require(input > 0 && input <= kLongest, "the image ", self, " is empty or too large");
    const int64_t output = output_size[place - 1];
    require(output >= 0 && output <= kLongest, "the output size ", output, " is out of range");
    windows.axes[place] = {.input = input, .output = output, .adaptive = true};
  }
  return windows;
}

PooledGeometry pooled_geometry(const Tensor& self, const Windows& windows) {
  PooledGeometry geometry{self.size, {}};
  for (int32_t axis = 3 - windows.spatial; axis < 3; ++axis) {
    geometry.sizes[self.dimensions - 3 + axis] = windows.axes[axis].output;
  }
  const std::span sizes(geometry.sizes.data(), static_cast<size_t>(self.dimensions));
  geometry.strides =
      suggests_channels_last(self) ? channels_last_strides(sizes) : contiguous_strides(sizes);
  return geometry;
}

}  // namespace menagerie
