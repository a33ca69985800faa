// Convolutions, some with fused operations, and a depthwise one behind one that deepens images:
// this file chooses the output's layout; the kernel library computes.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/copy.h"
#include "common/operators.h"
#include "common/shim_support.h"
#include "common/windows.h"
#include "cpu/epilogue.h"
#include "cpu/rows.h"
#include "cpu/work.h"
#include "kernels/finish.h"

using namespace menagerie;

namespace {

using kernels::Epilogue;
using kernels::Expanded;

// Return whether the compiler takes a weight to be channels-last: lowering declares constant
// weights of four axes so, whatever their bytes are.
bool claimed_channels_last(const Tensor& weight) {
  return weight.dimensions == 4 && weight.storage->is_constant();
}

// Return whether the model's compiler expects a channels-last output, as it does as soon as the
// input or the weight is (aten's mkldnn_conv_use_channels_last).
bool answers_channels_last(const Tensor& input, const Tensor& weight) {
  return claimed_channels_last(weight) || suggests_channels_last(input) ||
         suggests_channels_last(weight);
}

Tensor empty_channels_last(const Tensor& input, std::span<const int64_t> sizes) {
  const Extents strides = channels_last_strides(sizes);
  return empty_strided(input.dtype, sizes, {strides.data(), sizes.size()});
}

ConvolutionParameters forward_parameters(const Tensor& input, std::span<const int64_t> stride,
                                         std::span<const int64_t> padding,
                                         std::span<const int64_t> dilation, int64_t groups) {
  constexpr int64_t kNone[] = {0};
  return convolution_parameters(input,
                                {stride, padding, dilation, kNone, /*transposed=*/false, groups});
}

// Compute output = epilogue(input * weight + bias) of operands that fit, in any layout and dtype.
void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const Epilogue& epilogue, const Tensor& output);

void compute_widened(const Tensor& input, const Tensor& weight, const Tensor* bias,
                     const ConvolutionParameters& p, const Epilogue& epilogue,
                     const Tensor& output) {
  const Tensor result = empty_strided(Dtype::kFloat32, output.sizes(), output.strides());
  const Tensor wide_bias = bias == nullptr ? Tensor() : widened(*bias);
  convolve(widened(input), widened(weight), bias == nullptr ? nullptr : &wide_bias, p, epilogue,
           result);
  assign(result, output);
}

void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const Epilogue& epilogue, const Tensor& output) {
  if (output.empty()) return;
  if (is_half(output.dtype)) {
    return compute_widened(input, weight, bias, p, epilogue, output);
  }
  if (input.empty() || weight.empty()) {
    require(epilogue.activation == kernels::Activation::kNone,
            "an empty convolution with a fused operation is not supported");
    return fill_with_bias(output, bias);
  }
  const bool bias_dense = bias == nullptr || bias->is_contiguous();
  const Tensor dense_bias = bias_dense ? Tensor() : contiguous(*bias);
  const Tensor* plain_bias = bias_dense ? bias : &dense_bias;
  const Work work = work_of_convolution(input, weight, p.transposed, output);
  if (p.groups == 1 && !p.transposed) {
    if (const auto integers = integers_behind(weight)) {
      return kernels::rounded_convolution(input, weight, *integers, plain_bias, p, epilogue,
                                          output);
    }
  }
  kernels::convolution(input, weight, plain_bias, p, epilogue, output);
}

}  // namespace

Tensor backend::empty_convolution(const Tensor& input, const Tensor& weight,
                                  std::span<const int64_t> sizes) {
  return answers_channels_last(input, weight) ? empty_channels_last(input, sizes)
                                              : empty_contiguous(input.dtype, sizes);
}

void backend::convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
                       const ConvolutionParameters& p, const Tensor& output) {
  ::convolve(input, weight, bias, p, {}, output);
}

MENAGERIE_SHIM aoti_torch_cpu_mkldnn__convolution_pointwise(
    AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle* B, const int64_t* padding,
    int64_t padding_len_, const int64_t* stride, int64_t stride_len_, const int64_t* dilation,
    int64_t dilation_len_, int64_t groups, const char* attr, const double** scalars,
    int64_t scalars_len_, const char** algorithm, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& x = operand(X);
    const Tensor& weight = operand(W);
    const Tensor* bias = optional_operand(B);
    const ConvolutionParameters p =
        forward_parameters(x, numbers(stride, stride_len_), numbers(padding, padding_len_),
                           numbers(dilation, dilation_len_), groups);
    const Tensor output = empty_channels_last(x, convolution_sizes(x, weight, bias, p));
    convolve(x, weight, bias, p,
             activation_named(attr, list(scalars, scalars_len_), word_or_none(algorithm)), output);
    *ret0 = to_handle(output);
  });
}

namespace {

Epilogue epilogue_of(std::string_view name, std::span<const double> scalars) {
  std::vector<const double*> places;
  for (const double& scalar : scalars) places.push_back(&scalar);
  return activation_named(name, places, "none");
}

bool is_dense(const Tensor* bias) { return bias == nullptr || bias->is_contiguous(); }

// Return factors of rows, broadcast to the expanded images.
Tensor factors_of_rows(const Tensor& rows, std::span<const int64_t> sizes) {
  const auto fits = [&](size_t axis, int64_t size) {
    return rows.sizes()[axis] == 1 || rows.sizes()[axis] == size;
  };
  require(rows.dimensions == 4 && rows.dtype == Dtype::kFloat32 && fits(0, sizes[0]) &&
              fits(1, 1) && fits(2, sizes[2]) && fits(3, 1),
          "the factors ", rows, " must be one for each row");
  return broadcast(rows, sizes);
}

// Multiply each row of channels-last images by its factor, and apply the activation.
void finish_rows(const Tensor& images, const Tensor& factors, const Epilogue& epilogue) {
  const int64_t height = images.size[2], width = images.size[3] * images.size[1];
  for_each_row(static_cast<size_t>(images.size[0] * height), [&](size_t row) {
    const auto number = static_cast<int64_t>(row);
    const int64_t image = number / height, y = number % height;
    const float factor = factors.data<float>()[image * factors.stride[0] + y * factors.stride[2]];
    float* values = images.data<float>() + number * width;
    for (int64_t i = 0; i < width; ++i) values[i] *= factor;
    portable::activate(epilogue, values, width);
  });
}

void compute(const Expanded& call, const Tensor& output) {
  if (output.empty()) return;
  const bool dense = is_dense(call.bias) && is_dense(call.expansion_bias);
  if (dense && kernels::expanded_depthwise(call, output)) {
    return note_expanded(call, output);
  }
  const Tensor expanded = empty_channels_last(call.input, call.sizes);
  convolve(call.input, call.expansion, call.expansion_bias, call.expansion_parameters,
           call.rows == nullptr ? call.expansion_epilogue : Epilogue{}, expanded);
  if (call.rows != nullptr) finish_rows(expanded, *call.rows, call.expansion_epilogue);
  convolve(expanded, call.weight, call.bias, call.parameters, call.epilogue, output);
}

}  // namespace

MENAGERIE_SHIM aoti_torch_cpu_expanded_depthwise(
    AtenTensorHandle input, AtenTensorHandle expansion, AtenTensorHandle* expansion_bias,
    const int64_t* expansion_stride, int64_t expansion_stride_len_,
    const int64_t* expansion_padding, int64_t expansion_padding_len_,
    const int64_t* expansion_dilation, int64_t expansion_dilation_len_, AtenTensorHandle* rows,
    const char* expansion_activation, const double* expansion_scalars,
    int64_t expansion_scalars_len_, AtenTensorHandle weight, AtenTensorHandle* bias,
    const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_,
    const int64_t* dilation, int64_t dilation_len_, const char* activation, const double* scalars,
    int64_t scalars_len_, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& x = operand(input);
    require(x.dimensions == 4 && x.dtype == Dtype::kFloat32,
            "the input must be images of float32, not ", x);
    const Tensor& wide = operand(expansion);
    const Tensor* wide_bias = optional_operand(expansion_bias);
    const ConvolutionParameters first =
        forward_parameters(x, numbers(expansion_stride, expansion_stride_len_),
                           numbers(expansion_padding, expansion_padding_len_),
                           numbers(expansion_dilation, expansion_dilation_len_), 1);
    const std::vector<int64_t> sizes = convolution_sizes(x, wide, wide_bias, first);
    Tensor expanded = x;  // only its sizes are used
    std::ranges::copy(sizes, expanded.size.begin());
    const ConvolutionParameters second =
        forward_parameters(expanded, numbers(stride, stride_len_), numbers(padding, padding_len_),
                           numbers(dilation, dilation_len_), wide.size[0]);
    const Tensor* b = optional_operand(bias);
    const Tensor output =
        empty_channels_last(x, convolution_sizes(expanded, operand(weight), b, second));
    const Tensor* given = optional_operand(rows);
    const Tensor factors = given == nullptr ? Tensor() : factors_of_rows(*given, sizes);
    compute({x, wide, integers_behind(wide), wide_bias, first, sizes,
             given == nullptr ? nullptr : &factors,
             epilogue_of(expansion_activation, list(expansion_scalars, expansion_scalars_len_)),
             operand(weight), b, second, epilogue_of(activation, list(scalars, scalars_len_))},
            output);
    *ret0 = to_handle(output);
  });
}
