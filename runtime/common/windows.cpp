#include "common/windows.h"

#include <algorithm>
#include <string_view>

#include "common/backend.h"
#include "common/error.h"

namespace menagerie {
namespace {

// Set one number per axis from a list with one for all axes, or one for each.
void spread(std::array<int64_t, kMaxSpatial>& target, std::span<const int64_t> given,
            size_t spatial, int64_t least, std::string_view name) {
  require(given.size() == spatial || given.size() == 1, name, " has ", given.size(),
          " numbers for ", spatial, " axes");
  for (size_t i = 0; i < spatial; ++i) {
    target[i] = given[given.size() == 1 ? 0 : i];
    require(target[i] >= least, name, " ", target[i], " is less than ", least);
  }
}

int64_t output_size(const ConvolutionParameters& p, size_t i, int64_t input, int64_t window) {
  const int64_t reach = p.dilation[i] * (window - 1);
  if (p.transposed) {
    return (input - 1) * p.stride[i] - 2 * p.padding[i] + reach + p.output_padding[i] + 1;
  }
  const int64_t room = input + 2 * p.padding[i] - reach - 1;
  return room < 0 ? -1 : room / p.stride[i] + 1;
}

}  // namespace

ConvolutionParameters convolution_parameters(const Tensor& input,
                                             const ConvolutionNumbers& numbers) {
  ConvolutionParameters p;
  require(input.dimensions >= 3 && input.dimensions <= 5, "the input must have 3 to 5 axes, not ",
          input);
  p.spatial = static_cast<size_t>(input.dimensions) - 2;
  spread(p.stride, numbers.stride, p.spatial, 1, "stride");
  spread(p.padding, numbers.padding, p.spatial, 0, "padding");
  spread(p.dilation, numbers.dilation, p.spatial, 1, "dilation");
  spread(p.output_padding, numbers.output_padding, p.spatial, 0, "output padding");
  require(numbers.groups >= 1, "groups must be at least 1, not ", numbers.groups);
  p.transposed = numbers.transposed;
  p.groups = numbers.groups;
  return p;
}

std::vector<int64_t> convolution_sizes(const Tensor& input, const Tensor& weight,
                                       const Tensor* bias, const ConvolutionParameters& p) {
  const int64_t in = p.transposed ? weight.size[0] : weight.size[1] * p.groups;
  const int64_t out = p.transposed ? weight.size[1] * p.groups : weight.size[0];
  require(weight.dimensions == input.dimensions && input.size[1] == in && in % p.groups == 0 &&
              out % p.groups == 0,
          "input ", input, " and weight ", weight, " do not fit with ", p.groups, " groups");
  require(bias == nullptr || (bias->dimensions == 1 && bias->size[0] == out), "the bias must have ",
          out, " elements");
  require(input.dtype == weight.dtype && (bias == nullptr || bias->dtype == input.dtype), "input ",
          input, " and weight ", weight, " differ in dtype");
  std::vector<int64_t> sizes{input.size[0], out};
  for (size_t i = 0; i < p.spatial; ++i) {
    sizes.push_back(output_size(p, i, input.size[i + 2], weight.size[i + 2]));
    require(sizes.back() >= 0, "the window of weight ", weight, " is larger than input ", input);
  }
  return sizes;
}

void fill_with_bias(const Tensor& output, const Tensor* bias) {
  if (bias == nullptr) return backend::fill_zero(output);
  Tensor wide = *bias;
  wide.dimensions = output.dimensions - 1;  // [O, 1, ...], broadcast over the batch
  for (int32_t axis = 1; axis < wide.dimensions; ++axis) {
    wide.size[axis] = 1;
    wide.stride[axis] = 0;
  }
  backend::assign(wide, output);
}

namespace {

using Numbers = std::span<const int64_t>;

int64_t one_of(Numbers numbers, int32_t axis, int32_t axes, int64_t otherwise) {
  if (numbers.empty()) return otherwise;
  require(numbers.size() == 1 || static_cast<int32_t>(numbers.size()) == axes, "a window takes ",
          axes, " numbers or one, not ", numbers.size());
  return numbers[numbers.size() == 1 ? 0 : static_cast<size_t>(axis)];
}

// Return the output size of a given window (aten/src/ATen/native/Pool.h, pooling_output_shape).
int64_t slide(const PooledAxis& axis, bool ceil_mode) {
  const int64_t reach = axis.dilation * (axis.window - 1) + 1;
  const int64_t room = axis.input + 2 * axis.padding - reach + (ceil_mode ? axis.stride - 1 : 0);
  require(room >= 0, "the window of ", axis.window, " is larger than the input's ", axis.input);
  const int64_t size = room / axis.stride + 1;
  const bool hangs_over = ceil_mode && (size - 1) * axis.stride >= axis.input + axis.padding;
  return hangs_over ? size - 1 : size;
}

constexpr int64_t kLongest = int64_t{1} << 24;  // so that no product of these numbers overflows

PooledAxis sliding_axis(int64_t input, int32_t axis, int32_t axes, const PoolingNumbers& given) {
  PooledAxis result{.input = input, .window = one_of(given.window, axis, axes, 0)};
  result.stride = one_of(given.stride, axis, axes, result.window);
  result.padding = one_of(given.padding, axis, axes, 0);
  result.dilation = one_of(given.dilation, axis, axes, 1);
  require(result.window >= 1 && result.stride >= 1 && result.dilation >= 1 && result.padding >= 0 &&
              result.padding <= result.window / 2 && result.window <= kLongest &&
              result.stride <= kLongest && result.dilation <= kLongest && input <= kLongest,
          "window ", result.window, ", stride ", result.stride, ", padding ", result.padding,
          " and dilation ", result.dilation, " do not fit together");
  require(result.padding == 0 || result.dilation <= input, "between the points of a window of ",
          result.window, " with dilation ", result.dilation, " is the whole input of ", input);
  result.output = slide(result, given.ceil_mode);
  return result;
}

}  // namespace

WindowExtent PooledAxis::extent(int64_t position) const {
  if (adaptive) {
    const int64_t first = position * input / output;
    const int64_t end = ((position + 1) * input + output - 1) / output;
    return {first, end, 1, end - first};
  }
  const int64_t start = position * stride - padding;
  const int64_t reach = start + dilation * (window - 1) + 1;
  // The first point of the window that lies inside the input.
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

Windows sliding_windows(const Tensor& self, int32_t spatial, const PoolingNumbers& given) {
  Windows windows{as_volumes(self, spatial), {}, spatial};
  for (int32_t axis = 0; axis < spatial; ++axis) {
    const int32_t place = 3 - spatial + axis;
    windows.axes[place] = sliding_axis(windows.input.size[2 + place], axis, spatial, given);
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
