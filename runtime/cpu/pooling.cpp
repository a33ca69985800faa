// Pooling over images, for the windows that are too large for generated loops, and the adaptive
// kind.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "common/element.h"
#include "common/shim_support.h"
#include "cpu/rows.h"

using namespace menagerie;

namespace {

using Numbers = std::span<const int64_t>;

// A stretch of one axis that an output element looks at, within the input, and the length of the
// whole window with what hangs over into the padding.
struct Stretch {
  int64_t first;
  int64_t end;
  int64_t step;
  int64_t padded_length;
};

// One axis of a pooling.
struct Axis {
  int64_t input, output;
  int64_t window = 0, stride = 0, padding = 0, dilation = 1;
  bool adaptive = false;

  Stretch stretch(int64_t position) const {
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
};

struct Image {
  Tensor input;  // [N, C, H, W]; three axes get a batch of one
  Axis rows, columns;
};

Tensor with_batch(const Tensor& tensor) {
  if (tensor.dimensions == 4) return tensor;
  require(tensor.dimensions == 3, "the input must have 3 or 4 axes, not ", tensor);
  Tensor batch = tensor;
  batch.dimensions = 4;
  for (int32_t axis = 3; axis > 0; --axis) {
    batch.size[axis] = tensor.size[axis - 1];
    batch.stride[axis] = tensor.stride[axis - 1];
  }
  batch.size[0] = 1;
  batch.stride[0] = batch.size[1] * batch.stride[1];
  return batch;
}

// The result for an image like `like`, in its layout and with its number of axes.
Tensor empty_result(const Tensor& like, Dtype dtype, int64_t height, int64_t width) {
  Extents sizes = like.size;
  sizes[like.dimensions - 2] = height;
  sizes[like.dimensions - 1] = width;
  const std::span shape(sizes.data(), static_cast<size_t>(like.dimensions));
  if (!suggests_channels_last(like)) return empty_contiguous(dtype, shape);
  const Extents strides = channels_last_strides(shape);
  return empty_strided(dtype, shape, {strides.data(), shape.size()});
}

int64_t one_of(Numbers numbers, size_t axis) { return numbers[numbers.size() == 1 ? 0 : axis]; }

// Output size of a sliding window (aten/src/ATen/native/Pool.h, pooling_output_shape).
int64_t slide(const Axis& axis, bool ceil_mode) {
  const int64_t reach = axis.dilation * (axis.window - 1) + 1;
  const int64_t room = axis.input + 2 * axis.padding - reach + (ceil_mode ? axis.stride - 1 : 0);
  require(room >= 0, "the window of ", axis.window, " is larger than the input's ", axis.input);
  const int64_t size = room / axis.stride + 1;
  const bool hangs_over = ceil_mode && (size - 1) * axis.stride >= axis.input + axis.padding;
  return hangs_over ? size - 1 : size;
}

Axis sliding(int64_t input, size_t axis, Numbers window, Numbers stride, Numbers padding,
             Numbers dilation, bool ceil_mode) {
  Axis result{.input = input, .output = 0, .window = one_of(window, axis)};
  result.stride = stride.empty() ? result.window : one_of(stride, axis);
  result.padding = one_of(padding, axis);
  result.dilation = one_of(dilation, axis);
  require(result.window >= 1 && result.stride >= 1 && result.dilation >= 1 && result.padding >= 0 &&
              result.padding <= result.window / 2,
          "window ", result.window, ", stride ", result.stride, ", padding ", result.padding,
          " and dilation ", result.dilation, " do not fit together");
  result.output = slide(result, ceil_mode);
  return result;
}

Image sliding_image(const Tensor& self, Numbers window, Numbers stride, Numbers padding,
                    Numbers dilation, bool ceil_mode) {
  const Tensor input = with_batch(self);
  return {input, sliding(input.size[2], 0, window, stride, padding, dilation, ceil_mode),
          sliding(input.size[3], 1, window, stride, padding, dilation, ceil_mode)};
}

Image adaptive_image(const Tensor& self, Numbers output_size) {
  require(output_size.size() == 2, "the output size must be two numbers");
  const Tensor input = with_batch(self);
  require(input.size[2] > 0 && input.size[3] > 0, "the image ", self, " is empty");
  return {input,
          {.input = input.size[2], .output = output_size[0], .adaptive = true},
          {.input = input.size[3], .output = output_size[1], .adaptive = true}};
}

// Calls body(plane, output offset, rows, columns) for every element of the result.
template <class T, class Body>
void for_each_window(const Image& image, const Tensor& output, Body&& body) {
  const Tensor out = with_batch(output);
  const int64_t planes = out.size[0] * out.size[1];
  for_each_row(static_cast<size_t>(planes), [&](size_t row) {
    const auto plane = static_cast<int64_t>(row);
    const int64_t n = plane / out.size[1];
    const int64_t c = plane % out.size[1];
    const T* pixels = image.input.data<T>() + n * image.input.stride[0] + c * image.input.stride[1];
    for (int64_t i = 0; i < out.size[2]; ++i) {
      for (int64_t j = 0; j < out.size[3]; ++j) {
        const int64_t target =
            n * out.stride[0] + c * out.stride[1] + i * out.stride[2] + j * out.stride[3];
        body(pixels, target, image.rows.stretch(i), image.columns.stretch(j));
      }
    }
  });
}

template <class T>
void average(const Image& image, const Tensor& output, bool count_padding,
             std::optional<int64_t> divisor) {
  for_each_window<T>(image, output, [&](const T* pixels, int64_t target, Stretch y, Stretch x) {
    double sum = 0;
    for (int64_t i = y.first; i < y.end; i += y.step) {
      for (int64_t j = x.first; j < x.end; j += x.step) {
        sum += static_cast<double>(pixels[i * image.input.stride[2] + j * image.input.stride[3]]);
      }
    }
    const int64_t inside = (y.end - y.first) * (x.end - x.first);
    const int64_t count = divisor         ? *divisor
                          : count_padding ? y.padded_length * x.padded_length
                                          : inside;
    output.data<T>()[target] = static_cast<T>(sum / static_cast<double>(count));
  });
}

// Indices count pixels of the plane row by row. NaN wins, as in torch.
template <class T>
void largest(const Image& image, const Tensor& output, const Tensor& indices) {
  for_each_window<T>(image, output, [&](const T* pixels, int64_t target, Stretch y, Stretch x) {
    int64_t best = y.first * image.columns.input + x.first;
    T most = pixels[y.first * image.input.stride[2] + x.first * image.input.stride[3]];
    for (int64_t i = y.first; i < y.end; i += y.step) {
      for (int64_t j = x.first; j < x.end; j += x.step) {
        const T value = pixels[i * image.input.stride[2] + j * image.input.stride[3]];
        if (value > most || (value != value && most == most)) {
          most = value;
          best = i * image.columns.input + j;
        }
      }
    }
    output.data<T>()[target] = most;
    indices.data<int64_t>()[target] = best;
  });
}

Tensor averaged(const Tensor& self, const Image& image, bool count_padding,
                std::optional<int64_t> divisor) {
  require(is_floating(self.dtype), "averages are of floating numbers, not of ", self);
  Tensor output = empty_result(self, self.dtype, image.rows.output, image.columns.output);
  if (output.empty()) return output;
  with_type(self.dtype, [&]<class T>(T) { average<T>(image, output, count_padding, divisor); });
  return output;
}

void largest_of(const Tensor& self, const Image& image, AtenTensorHandle* values,
                AtenTensorHandle* indices) {
  const Tensor output = empty_result(self, self.dtype, image.rows.output, image.columns.output);
  const Tensor chosen = empty_result(self, Dtype::kInt64, image.rows.output, image.columns.output);
  if (!output.empty()) {
    with_type(self.dtype, [&]<class T>(T) { largest<T>(image, output, chosen); });
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
    constexpr int64_t kPlain[] = {1};
    const Image image = sliding_image(operand(self), numbers(kernel_size, kernel_size_len_),
                                      numbers(stride, stride_len_), numbers(padding, padding_len_),
                                      kPlain, ceil_mode != 0);
    *ret0 = to_handle(
        averaged(operand(self), image, count_include_pad != 0,
                 divisor_override == nullptr ? std::nullopt : std::optional(*divisor_override)));
  });
}

AOTITorchError aoti_torch_cpu__adaptive_avg_pool2d(AtenTensorHandle self,
                                                   const int64_t* output_size,
                                                   int64_t output_size_len_,
                                                   AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Image image = adaptive_image(operand(self), numbers(output_size, output_size_len_));
    *ret0 = to_handle(averaged(operand(self), image, /*count_padding=*/false, std::nullopt));
  });
}

AOTITorchError aoti_torch_cpu_max_pool2d_with_indices(
    AtenTensorHandle self, const int64_t* kernel_size, int64_t kernel_size_len_,
    const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_,
    const int64_t* dilation, int64_t dilation_len_, int32_t ceil_mode, AtenTensorHandle* ret0,
    AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    const Image image = sliding_image(operand(self), numbers(kernel_size, kernel_size_len_),
                                      numbers(stride, stride_len_), numbers(padding, padding_len_),
                                      numbers(dilation, dilation_len_), ceil_mode != 0);
    largest_of(operand(self), image, ret0, ret1);
  });
}

AOTITorchError aoti_torch_cpu_adaptive_max_pool2d(AtenTensorHandle self, const int64_t* output_size,
                                                  int64_t output_size_len_, AtenTensorHandle* ret0,
                                                  AtenTensorHandle* ret1) {
  return kernel(__func__, [&] {
    largest_of(operand(self), adaptive_image(operand(self), numbers(output_size, output_size_len_)),
               ret0, ret1);
  });
}
