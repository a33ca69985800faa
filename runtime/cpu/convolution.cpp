// Convolution shims: checking operands and choosing the output's layout; the kernel library
// computes.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/copy.h"
#include "common/kernels.h"
#include "common/shim_support.h"
#include "cpu/epilogue.h"
#include "cpu/widened.h"

using namespace menagerie;

namespace {

using kernels::ConvolutionParameters;
using kernels::Epilogue;
using Numbers = std::span<const int64_t>;

// A list with one number for all axes, or one for each.
void spread(std::array<int64_t, kernels::kMaxSpatial>& target, Numbers given, size_t spatial,
            int64_t least, std::string_view name) {
  require(given.size() == spatial || given.size() == 1, name, " has ", given.size(),
          " numbers for ", spatial, " axes");
  for (size_t i = 0; i < spatial; ++i) {
    target[i] = given[given.size() == 1 ? 0 : i];
    require(target[i] >= least, name, " ", target[i], " is less than ", least);
  }
}

ConvolutionParameters parameters_of(const Tensor& input, Numbers stride, Numbers padding,
                                    Numbers dilation, bool transposed, Numbers output_padding,
                                    int64_t groups) {
  ConvolutionParameters p;
  require(input.dimensions >= 3 && input.dimensions <= 5, "the input must have 3 to 5 axes, not ",
          input);
  p.spatial = static_cast<size_t>(input.dimensions) - 2;
  spread(p.stride, stride, p.spatial, 1, "stride");
  spread(p.padding, padding, p.spatial, 0, "padding");
  spread(p.dilation, dilation, p.spatial, 1, "dilation");
  spread(p.output_padding, output_padding, p.spatial, 0, "output padding");
  require(groups >= 1, "groups must be at least 1, not ", groups);
  p.transposed = transposed;
  p.groups = groups;
  return p;
}

int64_t output_size(const ConvolutionParameters& p, size_t i, int64_t input, int64_t window) {
  const int64_t reach = p.dilation[i] * (window - 1);
  if (p.transposed) {
    return (input - 1) * p.stride[i] - 2 * p.padding[i] + reach + p.output_padding[i] + 1;
  }
  const int64_t room = input + 2 * p.padding[i] - reach - 1;
  return room < 0 ? -1 : room / p.stride[i] + 1;
}

std::vector<int64_t> output_sizes(const Tensor& input, const Tensor& weight, const Tensor* bias,
                                  const ConvolutionParameters& p) {
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

void fill_with_bias(const Tensor& output, const Tensor* bias) {
  if (bias == nullptr) return fill_zero(output);
  Tensor wide = *bias;
  wide.dimensions = output.dimensions - 1;  // [O, 1, ...], broadcast over the batch
  for (int32_t axis = 1; axis < wide.dimensions; ++axis) wide.size[axis] = 1;
  assign(wide, output);
}

bool has_large_output_padding(const ConvolutionParameters& p) {
  return p.transposed && !std::ranges::equal(p.output_padding, p.stride, std::ranges::less{});
}

// Output padding of a stride or more reaches beyond every window: those rows are bias alone. The
// kernel library knows only smaller ones.
void compute_inner(const Tensor& input, const Tensor& weight, const Tensor* bias,
                   const ConvolutionParameters& p, const Tensor& output) {
  fill_with_bias(output, bias);
  ConvolutionParameters inner = p;
  Tensor reached = output;
  for (size_t i = 0; i < p.spatial; ++i) {
    inner.output_padding[i] = std::min(p.output_padding[i], p.padding[i]);
    reached.size[i + 2] -= p.output_padding[i] - inner.output_padding[i];
    if (reached.size[i + 2] <= 0) return;
  }
  kernels::convolution(input, weight, bias, inner, {}, reached);
}

void compute(const Tensor& input, const Tensor& weight, const Tensor* bias,
             const ConvolutionParameters& p, const Epilogue& epilogue, const Tensor& output);

void compute_widened(const Tensor& input, const Tensor& weight, const Tensor* bias,
                     const ConvolutionParameters& p, const Epilogue& epilogue,
                     const Tensor& output) {
  const Tensor result = empty_strided(Dtype::kFloat32, output.sizes(), output.strides());
  const Tensor wide_bias = bias == nullptr ? Tensor() : widened(*bias);
  const Tensor other = epilogue.other == nullptr ? Tensor() : widened(*epilogue.other);
  Epilogue wide = epilogue;
  if (epilogue.other != nullptr) wide.other = &other;
  compute(widened(input), widened(weight), bias == nullptr ? nullptr : &wide_bias, p, wide, result);
  assign(result, output);
}

void compute(const Tensor& input, const Tensor& weight, const Tensor* bias,
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
  if (has_large_output_padding(p)) return compute_inner(input, weight, plain_bias, p, output);
  kernels::convolution(input, weight, plain_bias, p, epilogue, output);
}

// Operands of torch's fused convolutions, which the compiler always has answer channels-last.
struct Fused {
  const Tensor& input;
  const Tensor& weight;
  const Tensor* bias;
  ConvolutionParameters parameters;

  std::vector<int64_t> sizes() const { return output_sizes(input, weight, bias, parameters); }
};

Fused fused(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias,
            Numbers padding, Numbers stride, Numbers dilation, int64_t groups) {
  const Tensor& x = operand(input);
  constexpr int64_t kNone[] = {0};
  return {x, operand(weight), optional_operand(bias),
          parameters_of(x, stride, padding, dilation, /*transposed=*/false, kNone, groups)};
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
          " has not the sizes of the result");
}

}  // namespace

AOTITorchError aoti_torch_cpu_convolution(
    AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle* bias, const int64_t* stride,
    int64_t stride_len_, const int64_t* padding, int64_t padding_len_, const int64_t* dilation,
    int64_t dilation_len_, int32_t transposed, const int64_t* output_padding,
    int64_t output_padding_len_, int64_t groups, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& x = operand(input);
    const Tensor& w = operand(weight);
    const Tensor* b = optional_operand(bias);
    const ConvolutionParameters p =
        parameters_of(x, numbers(stride, stride_len_), numbers(padding, padding_len_),
                      numbers(dilation, dilation_len_), transposed != 0,
                      numbers(output_padding, output_padding_len_), groups);
    const Tensor output = empty_output(x, output_sizes(x, w, b, p), answers_channels_last(x, w));
    compute(x, w, b, p, {}, output);
    *ret0 = to_handle(output);
  });
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise(
    AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle* B, const int64_t* padding,
    int64_t padding_len_, const int64_t* stride, int64_t stride_len_, const int64_t* dilation,
    int64_t dilation_len_, int64_t groups, const char* attr, const double** scalars,
    int64_t scalars_len_, const char** algorithm, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Fused call = fused(X, W, B, numbers(padding, padding_len_), numbers(stride, stride_len_),
                             numbers(dilation, dilation_len_), groups);
    const Epilogue epilogue =
        activation_named(attr, list(scalars, scalars_len_), word_or_none(algorithm));
    const Tensor output = empty_output(call.input, call.sizes(), /*channels_last=*/true);
    compute(call.input, call.weight, call.bias, call.parameters, epilogue, output);
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
    const Fused call = fused(X, W, B, numbers(padding, padding_len_), numbers(stride, stride_len_),
                             numbers(dilation, dilation_len_), groups);
    const auto sizes = call.sizes();
    check_other(operand(other), sizes);
    const Epilogue epilogue =
        binary_epilogue(operand(other), binary_attr, alpha, unary_attr,
                        list(unary_scalars, unary_scalars_len_), unary_algorithm);
    const Tensor output = empty_output(call.input, sizes, /*channels_last=*/true);
    compute(call.input, call.weight, call.bias, call.parameters, epilogue, output);
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
    const Fused call = fused(X, W, B, numbers(padding, padding_len_), numbers(stride, stride_len_),
                             numbers(dilation, dilation_len_), groups);
    const Tensor& target = operand(other);
    check_other(target, call.sizes());
    Epilogue epilogue = binary_epilogue(target, binary_attr, alpha, unary_attr,
                                        list(unary_scalars, unary_scalars_len_), unary_algorithm);
    // Only a sum can be formed in place: partial results pass through the target.
    const bool sum = epilogue.binary == kernels::Binary::kAdd;
    const Tensor factor = sum ? Tensor() : clone(target);
    if (!sum) epilogue.other = &factor;
    compute(call.input, call.weight, call.bias, call.parameters, epilogue, target);
    if (ret0 != nullptr) *ret0 = to_handle(target);
  });
}
