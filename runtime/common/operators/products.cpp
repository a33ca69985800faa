// Shims of matrix products and convolutions; they check operands.
#include <algorithm>

#include "common/host_operators.h"
#include "common/operators.h"
#include "common/shim_support.h"
#include "common/windows.h"

using namespace menagerie;

namespace {

void check(const Tensor& out, const Tensor& a, const Tensor& b, int32_t dimensions) {
  require(a.dimensions == dimensions && b.dimensions == dimensions && out.dimensions == dimensions,
          "operands must have ", dimensions, " axes, not ", a, " and ", b);
  const int32_t row = dimensions - 2;
  const int32_t column = dimensions - 1;
  const bool batches = dimensions == 2 || (a.size[0] == b.size[0] && a.size[0] == out.size[0]);
  require(batches && a.size[column] == b.size[row] && out.size[row] == a.size[row] &&
              out.size[column] == b.size[column],
          "shapes do not fit: ", a, " x ", b, " -> ", out);
  require(a.dtype == b.dtype && a.dtype == out.dtype, "dtypes differ: ", a, " x ", b, " -> ", out);
}

void multiply(const Tensor& out, const Tensor& a, const Tensor& b, int32_t dimensions,
              const Tensor* self = nullptr, double beta = 0, double alpha = 1) {
  check(out, a, b, dimensions);
  if (!out.empty()) backend::multiply(out, a, b, self, beta, alpha);
}

}  // namespace

MENAGERIE_OPERATOR(mm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
  return kernel(__func__, [&] { multiply(operand(out), operand(self), operand(mat2), 2); });
}

MENAGERIE_OPERATOR(addmm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
                              AtenTensorHandle mat2, double beta, double alpha) {
  return kernel(__func__, [&] {
    multiply(operand(out), operand(mat1), operand(mat2), 2, &operand(self), beta, alpha);
  });
}

MENAGERIE_OPERATOR(bmm_out)(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
  return kernel(__func__, [&] { multiply(operand(out), operand(self), operand(mat2), 3); });
}

MENAGERIE_OPERATOR(baddbmm_out)(AtenTensorHandle out, AtenTensorHandle self,
                                AtenTensorHandle batch1, AtenTensorHandle batch2, double beta,
                                double alpha) {
  return kernel(__func__, [&] {
    multiply(operand(out), operand(batch1), operand(batch2), 3, &operand(self), beta, alpha);
  });
}

namespace {

// Return whether output padding of a stride or more reaches beyond every window: those rows are
// bias alone, and kernel libraries support only smaller padding.
bool reaches_past_windows(const ConvolutionParameters& p) {
  return p.transposed && !std::ranges::equal(p.output_padding, p.stride, std::ranges::less{});
}

void convolve(const Tensor& input, const Tensor& weight, const Tensor* bias,
              const ConvolutionParameters& p, const Tensor& output) {
  if (output.empty()) return;
  if (!is_floating(output.dtype) || output.dtype == Dtype::kFloat64) {
    if (output.storage->is_on_device()) backend::finish();
    return host::convolve(input, weight, bias, p, output);
  }
  const bool nothing = input.empty() || weight.empty();
  if (!nothing && !reaches_past_windows(p)) {
    return backend::convolve(input, weight, bias, p, output);
  }
  fill_with_bias(output, bias);
  if (nothing) return;
  ConvolutionParameters inner = p;
  Tensor reached = output;
  for (size_t i = 0; i < p.spatial; ++i) {
    inner.output_padding[i] = std::min(p.output_padding[i], p.padding[i]);
    reached.size[i + 2] -= p.output_padding[i] - inner.output_padding[i];
    if (reached.size[i + 2] <= 0) return;
  }
  backend::convolve(input, weight, bias, inner, reached);
}

}  // namespace

MENAGERIE_OPERATOR(convolution)(AtenTensorHandle input, AtenTensorHandle weight,
                                AtenTensorHandle* bias, const int64_t* stride, int64_t stride_len_,
                                const int64_t* padding, int64_t padding_len_,
                                const int64_t* dilation, int64_t dilation_len_, int32_t transposed,
                                const int64_t* output_padding, int64_t output_padding_len_,
                                int64_t groups, AtenTensorHandle* ret0) {
  return kernel(__func__, [&] {
    const Tensor& x = operand(input);
    const Tensor& w = operand(weight);
    const Tensor* b = optional_operand(bias);
    const ConvolutionParameters p =
        convolution_parameters(x, {.stride = numbers(stride, stride_len_),
                                   .padding = numbers(padding, padding_len_),
                                   .dilation = numbers(dilation, dilation_len_),
                                   .output_padding = numbers(output_padding, output_padding_len_),
                                   .transposed = transposed != 0,
                                   .groups = groups});
    const Tensor output = backend::empty_convolution(x, w, convolution_sizes(x, w, b, p));
    convolve(x, w, b, p, output);
    *ret0 = to_handle(output);
  });
}
