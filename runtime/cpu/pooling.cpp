// Pooling over images and volumes, for the windows that are too large for generated loops, and the
// adaptive kind.
#include <algorithm>
#include <optional>

#include "common/element.h"
#include "common/shim_support.h"
#include "common/windows.h"
#include "cpu/rows.h"

using namespace menagerie;

namespace {

// The stretches of depth, height and width that one element of the result looks at.
using Place = std::array<Stretch, 3>;

// Calls body(plane, output offset, place) for every element of the result.
template <class T, class Body>
void for_each_window(const Windows& windows, const Tensor& out, Body&& body) {
  const Tensor& input = windows.input;
  for_each_row(static_cast<size_t>(out.size[0] * out.size[1]), [&](size_t row) {
    const int64_t n = static_cast<int64_t>(row) / out.size[1];
    const int64_t c = static_cast<int64_t>(row) % out.size[1];
    const T* plane = input.data<T>() + n * input.stride[0] + c * input.stride[1];
    const int64_t target = n * out.stride[0] + c * out.stride[1];
    const int64_t sizes[] = {out.size[2], out.size[3], out.size[4]};
    for_each_index(sizes, [&](std::span<const int64_t> index) {
      int64_t offset = target;
      Place place;
      for (size_t axis = 0; axis < 3; ++axis) {
        offset += index[axis] * out.stride[2 + axis];
        place[axis] = windows.axes[axis].stretch(index[axis]);
      }
      body(plane, offset, place);
    });
  });
}

// Calls body(offset in the plane, number of the element in the plane) inside a window.
template <class Body>
void for_each_element(const Windows& windows, const Place& place, Body&& body) {
  const auto& [z, y, x] = place;
  const auto& stride = windows.input.stride;
  for (int64_t k = z.first; k < z.end; k += z.step) {
    for (int64_t j = y.first; j < y.end; j += y.step) {
      const int64_t line = (k * windows.axes[1].input + j) * windows.axes[2].input;
      for (int64_t i = x.first; i < x.end; i += x.step) {
        body(k * stride[2] + j * stride[3] + i * stride[4], line + i);
      }
    }
  }
}

template <class T>
void average(const Windows& windows, const Tensor& out, bool count_padding,
             std::optional<int64_t> divisor) {
  for_each_window<T>(windows, out, [&](const T* plane, int64_t target, const Place& place) {
    double sum = 0;
    for_each_element(windows, place,
                     [&](int64_t at, int64_t) { sum += static_cast<double>(plane[at]); });
    int64_t inside = 1;
    int64_t padded = 1;
    for (const Stretch& stretch : place) {
      inside *= stretch.end - stretch.first;
      padded *= stretch.padded_length;
    }
    const int64_t count = divisor.value_or(count_padding ? padded : inside);
    out.data<T>()[target] = static_cast<T>(sum / static_cast<double>(count));
  });
}

// Indices count the elements of the plane. NaN wins, and of several the last, as in torch.
template <class T>
void largest(const Windows& windows, const Tensor& out, const Tensor& indices) {
  for_each_window<T>(windows, out, [&](const T* plane, int64_t target, const Place& place) {
    int64_t best = -1;
    T most{};
    for_each_element(windows, place, [&](int64_t at, int64_t number) {
      const T value = plane[at];
      if (best < 0 || value > most || value != value) {
        most = value;
        best = number;
      }
    });
    out.data<T>()[target] = most;
    indices.data<int64_t>()[target] = best;
  });
}

Tensor empty_result(const Tensor& self, const Windows& windows, int32_t spatial, Dtype dtype) {
  const PooledGeometry geometry = pooled_geometry(self, windows, spatial);
  const auto axes = static_cast<size_t>(self.dimensions);
  return empty_strided(dtype, {geometry.sizes.data(), axes}, {geometry.strides.data(), axes});
}

Tensor averaged(const Tensor& self, const Windows& windows, int32_t spatial, bool count_padding,
                std::optional<int64_t> divisor) {
  require(is_floating(self.dtype), "averages are of floating numbers, not of ", self);
  Tensor output = empty_result(self, windows, spatial, self.dtype);
  if (output.empty()) return output;
  const Tensor volumes = as_volumes(output, spatial);
  with_type(self.dtype, [&]<class T>(T) { average<T>(windows, volumes, count_padding, divisor); });
  return output;
}

Tensor averaged_sliding(const Tensor& self, int32_t spatial, const Sliding& sliding,
                        bool count_padding, const int64_t* divisor) {
  require(divisor == nullptr || *divisor != 0, "the divisor is nought");
  return averaged(self, sliding_windows(self, spatial, sliding), spatial, count_padding,
                  divisor == nullptr ? std::nullopt : std::optional(*divisor));
}

void largest_of(const Tensor& self, const Windows& windows, int32_t spatial,
                AtenTensorHandle* values, AtenTensorHandle* indices) {
  const Tensor output = empty_result(self, windows, spatial, self.dtype);
  const Tensor chosen = empty_result(self, windows, spatial, Dtype::kInt64);
  if (!output.empty()) {
    with_type(self.dtype, [&]<class T>(T) {
      largest<T>(windows, as_volumes(output, spatial), as_volumes(chosen, spatial));
    });
  }
  *values = to_handle(output);
  *indices = to_handle(chosen);
}

}  // namespace

AOTITorchError aoti_torch_cpu_avg_pool2d(AtenTensorHandle self, const int64_t* kernel_size,
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

AOTITorchError aoti_torch_cpu_avg_pool3d(AtenTensorHandle self, const int64_t* kernel_size,
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

AOTITorchError aoti_torch_cpu_max_pool2d_with_indices(
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

AOTITorchError aoti_torch_cpu_max_pool3d_with_indices(
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

AOTITorchError aoti_torch_cpu__adaptive_avg_pool2d(AtenTensorHandle self,
                                                   const int64_t* output_size,
                                                   int64_t output_size_len_,
                                                   AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const Windows windows = adaptive_windows(input, numbers(output_size, output_size_len_));
    *ret0 = to_handle(averaged(input, windows, 2, /*count_padding=*/false, std::nullopt));
  });
}

AOTITorchError aoti_torch_cpu_adaptive_max_pool2d(AtenTensorHandle self, const int64_t* output_size,
                                                  int64_t output_size_len_, AtenTensorHandle* ret0,
                                                  AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Tensor& input = operand(self);
    const Windows windows = adaptive_windows(input, numbers(output_size, output_size_len_));
    largest_of(input, windows, 2, ret0, ret1);
  });
}
