// A depthwise convolution behind one that makes images deeper, as lowering asks for both
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

// Factors of rows as broadcast to the expanded images.
Tensor factors_of_rows(const Tensor& rows, std::span<const int64_t> sizes) {
  const auto fits = [&](size_t axis, int64_t size) {
    return rows.sizes()[axis] == 1 || rows.sizes()[axis] == size;
  };
  require(rows.dimensions == 4 && rows.dtype == Dtype::kFloat32 && fits(0, sizes[0]) &&
              fits(1, 1) && fits(2, sizes[2]) && fits(3, 1),
          "the factors ", rows, " are none of rows");
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
