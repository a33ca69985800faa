// Pooling over images and volumes on the device.
#include <array>
#include <optional>

#include "common/shim_support.h"
#include "common/windows.h"
#include "metal/dispatch.h"
#include "metal/operands.h"

using namespace menagerie;
using namespace menagerie::metal;

namespace {

// As pooling.metal has them.
struct Shape {
  std::array<int32_t, 3> input, output, window, stride;
};
struct Reach {
  std::array<int32_t, 3> padding, dilation;
  int32_t count_padding = 0;
  int32_t divisor = 0;
};

Shape shape_of(const Windows& windows) {
  Shape shape{};
  for (size_t axis = 0; axis < 3; ++axis) {
    const PooledAxis& of = windows.axes[axis];
    shape.input[axis] = static_cast<int32_t>(of.input);
    shape.output[axis] = static_cast<int32_t>(of.output);
    shape.window[axis] = of.adaptive ? 0 : static_cast<int32_t>(of.window);
    shape.stride[axis] = static_cast<int32_t>(of.stride);
  }
  return shape;
}

Reach reach_of(const Windows& windows) {
  Reach reach{};
  for (size_t axis = 0; axis < 3; ++axis) {
    reach.padding[axis] = static_cast<int32_t>(windows.axes[axis].padding);
    reach.dilation[axis] = static_cast<int32_t>(windows.axes[axis].dilation);
  }
  return reach;
}

// A result as the kernels write it, and where it shall lie.
struct Result {
  Tensor dense;
  PooledGeometry geometry;

  Tensor settled() const {
    return with_strides(dense, {geometry.strides.data(), dense.sizes().size()});
  }
};

Result empty_result(const Tensor& self, const Windows& windows, int32_t spatial, Dtype dtype) {
  const PooledGeometry geometry = pooled_geometry(self, windows, spatial);
  const std::span sizes(geometry.sizes.data(), static_cast<size_t>(self.dimensions));
  return {metal::empty_contiguous(dtype, sizes), geometry};
}

Tensor averaged(const Tensor& self, const Windows& windows, int32_t spatial, bool count_padding,
                std::optional<int64_t> divisor) {
  require(is_floating(self.dtype), "averages are of floating numbers, not of ", self);
  const Result result = empty_result(self, windows, spatial, self.dtype);
  Reach reach = reach_of(windows);
  reach.count_padding = count_padding ? 1 : 0;
  reach.divisor = static_cast<int32_t>(divisor.value_or(0));
  Arguments arguments;
  arguments.add(dense(self)).add(result.dense).add(shape_of(windows)).add(reach);
  dispatch("pooling", "average_" + metal_name(self.dtype), arguments, threads_for(result.dense));
  return result.settled();
}

Tensor averaged_sliding(const Tensor& self, int32_t spatial, const Sliding& sliding,
                        bool count_padding, const int64_t* divisor) {
  require(divisor == nullptr || (*divisor != 0 && *divisor == static_cast<int32_t>(*divisor)),
          "the divisor is nought or too large");
  return averaged(self, sliding_windows(self, spatial, sliding), spatial, count_padding,
                  divisor == nullptr ? std::nullopt : std::optional(*divisor));
}

void largest_of(const Tensor& self, const Windows& windows, int32_t spatial,
                AtenTensorHandle* values, AtenTensorHandle* indices) {
  const Dtype computed = is_floating(self.dtype) ? self.dtype : Dtype::kInt64;
  Result result = empty_result(self, windows, spatial, computed);
  const Result chosen = empty_result(self, windows, spatial, Dtype::kInt64);
  Arguments arguments;
  arguments.add(converted(self, computed)).add(result.dense).add(chosen.dense);
  arguments.add(shape_of(windows)).add(reach_of(windows));
  dispatch("pooling", "largest_" + metal_name(computed), arguments, threads_for(result.dense));
  result.dense = converted(result.dense, self.dtype);
  *values = to_handle(result.settled());
  *indices = to_handle(chosen.settled());
}

}  // namespace

AOTITorchError aoti_torch_mps_avg_pool2d(AtenTensorHandle self, const int64_t* kernel_size,
                                         int64_t kernel_size_len_, const int64_t* stride,
                                         int64_t stride_len_, const int64_t* padding,
                                         int64_t padding_len_, int32_t ceil_mode,
                                         int32_t count_include_pad, int64_t* divisor_override,
                                         AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Sliding sliding{.window = numbers(kernel_size, kernel_size_len_),
                          .stride = numbers(stride, stride_len_),
                          .padding = numbers(padding, padding_len_),
                          .dilation = {},
                          .ceil_mode = ceil_mode != 0};
    *ret0 = to_handle(
        averaged_sliding(operand(self), 2, sliding, count_include_pad != 0, divisor_override));
  });
}

AOTITorchError aoti_torch_mps_avg_pool3d(AtenTensorHandle self, const int64_t* kernel_size,
                                         int64_t kernel_size_len_, const int64_t* stride,
                                         int64_t stride_len_, const int64_t* padding,
                                         int64_t padding_len_, int32_t ceil_mode,
                                         int32_t count_include_pad, int64_t* divisor_override,
                                         AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Sliding sliding{.window = numbers(kernel_size, kernel_size_len_),
                          .stride = numbers(stride, stride_len_),
                          .padding = numbers(padding, padding_len_),
                          .dilation = {},
                          .ceil_mode = ceil_mode != 0};
    *ret0 = to_handle(
        averaged_sliding(operand(self), 3, sliding, count_include_pad != 0, divisor_override));
  });
}

AOTITorchError aoti_torch_mps_max_pool2d_with_indices(
    AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_,
    const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_,
    const int64_t* dilation, int64_t dilation_len_, int32_t ceil_mode, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Sliding sliding{.window = numbers(kernel_size, kernel_size_len_),
                          .stride = numbers(stride, stride_len_),
                          .padding = numbers(padding, padding_len_),
                          .dilation = numbers(dilation, dilation_len_),
                          .ceil_mode = ceil_mode != 0};
    const Tensor& input = operand(self);
    largest_of(input, sliding_windows(input, 2, sliding), 2, ret0, ret1);
  });
}

AOTITorchError aoti_torch_mps_max_pool3d_with_indices(
    AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_,
    const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_,
    const int64_t* dilation, int64_t dilation_len_, int32_t ceil_mode, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Sliding sliding{.window = numbers(kernel_size, kernel_size_len_),
                          .stride = numbers(stride, stride_len_),
                          .padding = numbers(padding, padding_len_),
                          .dilation = numbers(dilation, dilation_len_),
                          .ceil_mode = ceil_mode != 0};
    const Tensor& input = operand(self);
    largest_of(input, sliding_windows(input, 3, sliding), 3, ret0, ret1);
  });
}

AOTITorchError aoti_torch_mps__adaptive_avg_pool2d(AtenTensorHandle self,
                                                   const int64_t* output_size,
                                                   int64_t output_size_len_,
                                                   AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const Windows windows = adaptive_windows(input, numbers(output_size, output_size_len_));
    *ret0 = to_handle(averaged(input, windows, 2, /*count_padding=*/false, std::nullopt));
  });
}

AOTITorchError aoti_torch_mps_adaptive_max_pool2d(AtenTensorHandle self, const int64_t* output_size,
                                                  int64_t output_size_len_, AtenTensorHandle* ret0,
                                                  AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const Windows windows = adaptive_windows(input, numbers(output_size, output_size_len_));
    largest_of(input, windows, 2, ret0, ret1);
  });
}
