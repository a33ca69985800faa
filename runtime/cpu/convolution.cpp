// Convolutions, also with fused operations, and a depthwise one behind one that makes images
// deeper: choosing the output's layout; the kernel library computes.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/copy.h"
#include "common/operators.h"
#include "common/shim_support.h"
#include "common/windows.h"
#include "cpu/epilogue.h"
#include "cpu/work.h"

using namespace menagerie;

namespace {

using kernels::Epilogue;
using kernels::Expanded;

// Lowering tells the compiler that constant weights of four axes are channels-last, whatever their
// bytes are.
bool claimed_channels_last(const Tensor& weight) {
  return weight.dimensions == 4 && weight.storage->is_constant();
}

// The layout that the compiler of the model has counted on: channels-last as soon as the input or
// the weight is (aten's mkldnn_conv_use_channels_last).
bool answers_channels_last(const Tensor& input, const Tensor& weight) {
  return claimed_channels_last(weight) || suggests_channels_last(input) ||
         suggests_channels_last(weight);
}

Tensor empty_output(const Tensor& input, std::span<const int64_t> sizes, bool channels_last) {
  const Extents strides = channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes);
  return empty_strided(input.dtype, sizes, {strides.data(), sizes.size()});
}

// output = epilogue(input * weight + bias), of operands that fit, for any layout and dtype.
void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const Epilogue& epilogue, const Tensor& output);

void compute_widened(const Tensor& input, const Tensor& weight, const Tensor* bias,
                     const ConvolutionParameters& p, const Epilogue& epilogue,
                     const Tensor& output) {
  const Tensor result = empty_strided(Dtype::kFloat32, output.sizes(), output.strides());
  const Tensor wide_bias = bias == nullptr ? Tensor() : widened(*bias);
  const Tensor other = epilogue.other == nullptr ? Tensor() : widened(*epilogue.other);
  Epilogue wide = epilogue;
  if (epilogue.other != nullptr) wide.other = &other;
  convolve(widened(input), widened(weight), bias == nullptr ? nullptr : &wide_bias, p, wide,
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
    require(epilogue.binary == kernels::Binary::kNone &&
                epilogue.activation == kernels::Activation::kNone,
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

// Operands of torch's fused convolutions, which the compiler always has answer channels-last.
struct Fused {
  const Tensor& input;
  const Tensor& weight;
  const Tensor* bias;
  ConvolutionParameters parameters;

  std::vector<int64_t> sizes() const { return convolution_sizes(input, weight, bias, parameters); }
};

Fused fused(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias,
            std::span<const int64_t> stride, std::span<const int64_t> padding,
            std::span<const int64_t> dilation, int64_t groups) {
  constexpr int64_t kNone[] = {0};
  const Tensor& x = operand(input);
  return {
      x, operand(weight), optional_operand(bias),
      convolution_parameters(x, {stride, padding, dilation, kNone, /*transposed=*/false, groups})};
}

Epilogue binary_epilogue(const Tensor& other, const char* binary, const double* alpha,
                         const char** unary, std::span<const double* const> scalars,
                         const char** algorithm) {
  Epilogue epilogue = activation_named(word_or_none(unary), scalars, word_or_none(algorithm));
  epilogue.binary = binary_named(binary, alpha);
  epilogue.other = &other;
  return epilogue;
}

void check_other(const Tensor& other, std::span<const int64_t> sizes) {
  require(std::ranges::equal(other.sizes(), sizes), "the other operand ", other,
          " does not have the sizes of the result");
}

}  // namespace

Tensor backend::empty_convolution(const Tensor& input, const Tensor& weight,
                                  std::span<const int64_t> sizes) {
  return empty_output(input, sizes, answers_channels_last(input, weight));
}

void backend::convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
                       const ConvolutionParameters& p, const Tensor& output) {
  ::convolve(input, weight, bias, p, {}, output);
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise(
    AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle* B, const int64_t* padding,
    int64_t padding_len_, const int64_t* stride, int64_t stride_len_, const int64_t* dilation,
    int64_t dilation_len_, int64_t groups, const char* attr, const double** scalars,
    int64_t scalars_len_, const char** algorithm, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Fused call = fused(X, W, B, numbers(stride, stride_len_), numbers(padding, padding_len_),
                             numbers(dilation, dilation_len_), groups);
    const Epilogue epilogue =
        activation_named(attr, list(scalars, scalars_len_), word_or_none(algorithm));
    const Tensor output = empty_output(call.input, call.sizes(), /*channels_last=*/true);
    convolve(call.input, call.weight, call.bias, call.parameters, epilogue, output);
    *ret0 = to_handle(output);
  });
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary(
    AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W, AtenTensorHandle* B,
    const int64_t* padding, int64_t padding_len_, const int64_t* stride, int64_t stride_len_,
    const int64_t* dilation, int64_t dilation_len_, int64_t groups, const char* binary_attr,
    double* alpha, const char** unary_attr, const double** unary_scalars,
    int64_t unary_scalars_len_, const char** unary_algorithm, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Fused call = fused(X, W, B, numbers(stride, stride_len_), numbers(padding, padding_len_),
                             numbers(dilation, dilation_len_), groups);
    const auto sizes = call.sizes();
    check_other(operand(other), sizes);
    const Epilogue epilogue =
        binary_epilogue(operand(other), binary_attr, alpha, unary_attr,
                        list(unary_scalars, unary_scalars_len_), unary_algorithm);
    const Tensor output = empty_output(call.input, sizes, /*channels_last=*/true);
    convolve(call.input, call.weight, call.bias, call.parameters, epilogue, output);
    *ret0 = to_handle(output);
  });
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary_(
    AtenTensorHandle other, AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle* B,
    const int64_t* padding, int64_t padding_len_, const int64_t* stride, int64_t stride_len_,
    const int64_t* dilation, int64_t dilation_len_, int64_t groups, const char* binary_attr,
    double* alpha, const char** unary_attr, const double** unary_scalars,
    int64_t unary_scalars_len_, const char** unary_algorithm, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Fused call = fused(X, W, B, numbers(stride, stride_len_), numbers(padding, padding_len_),
                             numbers(dilation, dilation_len_), groups);
    const Tensor& target = operand(other);
    check_other(target, call.sizes());
    Epilogue epilogue = binary_epilogue(target, binary_attr, alpha, unary_attr,
                                        list(unary_scalars, unary_scalars_len_), unary_algorithm);
    // Only a sum can be formed in place: partial results pass through the target.
    const bool sum = epilogue.binary == kernels::Binary::kAdd;
    const Tensor factor = sum ? Tensor() : clone(target);
    if (!sum) epilogue.other = &factor;
    convolve(call.input, call.weight, call.bias, call.parameters, epilogue, target);
    if (ret0 != nullptr) *ret0 = to_handle(target);
  });
}

namespace {

Epilogue epilogue_of(std::string_view name, std::span<const double> scalars) {
  std::vector<const double*> places;
  for (const double& scalar : scalars) places.push_back(&scalar);
  return activation_named(name, places, "none");
}

Tensor empty_images(const Tensor& like, std::span<const int64_t> sizes) {
  const Extents strides = channels_last_strides(sizes);
  return empty_strided(like.dtype, sizes, {strides.data(), sizes.size()});
}

bool is_dense(const Tensor* bias) { return bias == nullptr || bias->is_contiguous(); }

// Factors of rows as broadcast to the expanded images.
Tensor factors_of_rows(const Tensor& rows, std::span<const int64_t> sizes) {
  const auto fits = [&](size_t axis, int64_t size) {
    return rows.sizes()[axis] == 1 || rows.sizes()[axis] == size;
  };
  require(rows.dimensions == 4 && rows.dtype == Dtype::kFloat32 && fits(0, sizes[0]) &&
              fits(1, 1) && fits(2, sizes[2]) && fits(3, 1),
          "the factors ", rows, " must be one for each row");
  return broadcast(rows, sizes);
}

void compute(const Expanded& call, const Tensor& output) {
  if (output.empty()) return;
  const bool dense = is_dense(call.bias) && is_dense(call.expansion_bias);
  if (dense && kernels::expanded_depthwise(call, output)) {
    return note_expanded(call, output);
  }
  const Tensor expanded = empty_images(call.input, call.sizes);
  Epilogue epilogue = call.expansion_epilogue;
  Tensor factors;
  if (call.rows != nullptr) {
    factors = empty_images(call.input, call.sizes);  // laid as what they multiply
    copy(*call.rows, factors);
    epilogue.binary = kernels::Binary::kMultiply;
    epilogue.other = &factors;
  }
  convolve(call.input, call.expansion, call.expansion_bias, call.expansion_parameters, epilogue,
           expanded);
  convolve(expanded, call.weight, call.bias, call.parameters, call.epilogue, output);
}

ConvolutionParameters parameters_of(const Tensor& images, std::span<const int64_t> stride,
                                    std::span<const int64_t> padding,
                                    std::span<const int64_t> dilation, int64_t groups) {
  constexpr int64_t kNone[] = {0};
  require(images.dimensions == 4, "the input must be images, not ", images);
  return convolution_parameters(images,
                                {stride, padding, dilation, kNone, /*transposed=*/false, groups});
}

}  // namespace

AOTITorchError aoti_torch_cpu_expanded_depthwise(
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
    const Tensor& wide = operand(expansion);
    const Tensor* wide_bias = optional_operand(expansion_bias);
    const ConvolutionParameters first =
        parameters_of(x, numbers(expansion_stride, expansion_stride_len_),
                      numbers(expansion_padding, expansion_padding_len_),
                      numbers(expansion_dilation, expansion_dilation_len_), 1);
    const std::vector<int64_t> sizes = convolution_sizes(x, wide, wide_bias, first);
    Tensor expanded = x;  // its sizes alone
    std::ranges::copy(sizes, expanded.size.begin());
    const ConvolutionParameters second =
        parameters_of(expanded, numbers(stride, stride_len_), numbers(padding, padding_len_),
                      numbers(dilation, dilation_len_), wide.size[0]);
    const Tensor* b = optional_operand(bias);
    const Tensor output = empty_images(x, convolution_sizes(expanded, operand(weight), b, second));
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
