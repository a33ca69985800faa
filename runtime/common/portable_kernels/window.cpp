#include "common/portable_kernels/window.h"

namespace menagerie::portable {
namespace {

constexpr int64_t kOutside = -1;

// The input's position for an output's and a tap's along one axis.
int64_t position(int64_t output, int64_t tap, int64_t inputs, size_t axis,
                 const kernels::ConvolutionParameters& p) {
  int64_t at = 0;
  if (p.transposed) {  // output = input * stride - padding + tap * dilation, solved for the input
    const int64_t scaled = output + p.padding[axis] - tap * p.dilation[axis];
    if (scaled < 0 || scaled % p.stride[axis] != 0) return kOutside;
    at = scaled / p.stride[axis];
  } else {
    at = output * p.stride[axis] - p.padding[axis] + tap * p.dilation[axis];
  }
  return at >= 0 && at < inputs ? at : kOutside;
}

}  // namespace

Image::Image(const Tensor& tensor)
    : data(tensor.data<float>()),
      size{tensor.size[0], tensor.size[1]},
      stride{tensor.stride[0], tensor.stride[1]} {
  for (int32_t axis = 2; axis < tensor.dimensions; ++axis) {
    extent[axis - 2] = tensor.size[axis];
    step[axis - 2] = tensor.stride[axis];
  }
}

Window::Window(const Image& input, const Spatial& output, const Image& weight,
               const kernels::ConvolutionParameters& parameters)
    : window_(weight.extent), weight_step_(weight.step), batch_stride_(input.stride[0]) {
  for (size_t axis = 0; axis < kSpatial; ++axis) {
    for (int64_t out = 0; out < output[axis]; ++out) {
      for (int64_t tap = 0; tap < window_[axis]; ++tap) {
        const int64_t at = position(out, tap, input.extent[axis], axis, parameters);
        offsets_[axis].push_back(at == kOutside ? kOutside : at * input.step[axis]);
      }
    }
  }
}

Spatial Window::split(int64_t tap) const {
  return {tap / window_[2] / window_[1], tap / window_[2] % window_[1], tap % window_[2]};
}

int64_t Window::input_offset(const std::array<int64_t, Rows::kAxes>& index, int64_t tap) const {
  const Spatial taps = split(tap);
  int64_t offset = index[0] * batch_stride_;
  for (size_t axis = 0; axis < kSpatial; ++axis) {
    const int64_t along = offsets_[axis][index[axis + 1] * window_[axis] + taps[axis]];
    if (along == kOutside) return kOutside;
    offset += along;
  }
  return offset;
}

int64_t Window::weight_offset(int64_t tap) const {
  const Spatial taps = split(tap);
  return taps[0] * weight_step_[0] + taps[1] * weight_step_[1] + taps[2] * weight_step_[2];
}

Rows rows_of(const Tensor& output) {
  Rows rows;
  rows.size[0] = output.size[0];
  rows.stride[0] = output.stride[0];
  for (int32_t axis = 2; axis < output.dimensions; ++axis) {
    rows.size[axis - 1] = output.size[axis];
    rows.stride[axis - 1] = output.stride[axis];
  }
  return rows;
}

bool is_depthwise(const Image& input, const Image& weight,
                  const kernels::ConvolutionParameters& parameters) {
  return !parameters.transposed && parameters.groups == input.size[1] &&
         weight.size[0] == input.size[1] && weight.size[1] == 1;
}

}  // namespace menagerie::portable
