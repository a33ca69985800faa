// A depthwise convolution behind one of 1 x 1, as lowering asks for both
// (transforms/lowering/expanded_depthwise.py).
#include <string_view>
#include <vector>

#include "common/convolutions.h"
#include "common/copy.h"
#include "common/operators.h"
#include "common/shim_support.h"
#include "cpu/convolution.h"
#include "cpu/epilogue.h"
#include "cpu/work.h"

using namespace menagerie;

namespace {

using kernels::ConvolutionParameters;
using kernels::Epilogue;
using kernels::Expanded;

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

void compute(const Expanded& call, const ConvolutionParameters& plain, const Tensor& output) {
  if (output.empty()) return;
  const bool dense = is_dense(call.bias) && is_dense(call.expansion_bias);
  if (dense && kernels::expanded_depthwise(call, output)) {
    return note_expanded(call.input, call.expansion, call.weight, output);
  }
  const auto sizes = convolution_sizes(call.input, call.expansion, call.expansion_bias, plain);
  const Tensor expanded = empty_images(call.input, sizes);
  convolve(call.input, call.expansion, call.expansion_bias, plain, call.expansion_epilogue,
           expanded);
  convolve(expanded, call.weight, call.bias, call.parameters, call.epilogue, output);
}

}  // namespace

AOTITorchError aoti_torch_cpu_expanded_depthwise(
    AtenTensorHandle input, AtenTensorHandle expansion, AtenTensorHandle* expansion_bias,
    const char* expansion_activation, const double* expansion_scalars,
    int64_t expansion_scalars_len_, AtenTensorHandle weight, AtenTensorHandle* bias,
    const int64_t* stride, int64_t stride_len_, const int64_t* padding, int64_t padding_len_,
    const int64_t* dilation, int64_t dilation_len_, const char* activation, const double* scalars,
    int64_t scalars_len_, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    constexpr int64_t kNone[] = {0}, kOne[] = {1};
    const Tensor& x = operand(input);
    const Tensor& wide = operand(expansion);
    const Tensor* wide_bias = optional_operand(expansion_bias);
    const ConvolutionParameters plain =
        convolution_parameters(x, {kOne, kNone, kOne, kNone, /*transposed=*/false, 1});
    Tensor expanded = x;  // its sizes alone
    std::ranges::copy(convolution_sizes(x, wide, wide_bias, plain), expanded.size.begin());
    const ConvolutionParameters each = convolution_parameters(
        expanded, {numbers(stride, stride_len_), numbers(padding, padding_len_),
                   numbers(dilation, dilation_len_), kNone, /*transposed=*/false, wide.size[0]});
    const Tensor* b = optional_operand(bias);
    const Tensor output = empty_images(x, convolution_sizes(expanded, operand(weight), b, each));
    compute({x, wide, integers_behind(wide), wide_bias,
             epilogue_of(expansion_activation, list(expansion_scalars, expansion_scalars_len_)),
             operand(weight), b, each, epilogue_of(activation, list(scalars, scalars_len_))},
            plain, output);
    *ret0 = to_handle(output);
  });
}
