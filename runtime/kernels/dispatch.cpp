// The choice of kernels on x86-64: one of our own where it was measured to be faster
// (infra/adr/0019), Winograd's algorithm where it pays, else oneDNN's. The panel kernels define
// `PackedRight` (simd/products.cpp).
#include "common/copy.h"
#include "kernels/kernels.h"
#include "kernels/onednn/onednn.h"
#include "kernels/processor.h"
#include "kernels/simd/kernels.h"
#include "kernels/simd/simd.h"

namespace menagerie::kernels {

void convolution(const Tensor& input, const Tensor& weight, const Tensor* bias,
                 const ConvolutionParameters& parameters, const Epilogue& epilogue,
                 const Tensor& output) {
  const auto winograd_pays = [&] {
    return onednn::winograd_pays(input, weight, parameters, output);
  };
  if (weight.storage->narrow() != nullptr && !winograd_pays() &&
      simd::narrow_convolution(input, weight, bias, parameters, epilogue, output)) {
    return;
  }
  if (simd::pointwise(input, weight, bias, parameters, epilogue, output)) return;
  if (simd::sequence(input, weight, bias, parameters, epilogue, output)) return;
  if (simd::depthwise(input, weight, bias, parameters, epilogue, output)) return;
  if (winograd_pays()) {
    return onednn::winograd(input, weight, bias, parameters, epilogue, output);
  }
  onednn::convolution(input, weight, bias, parameters, epilogue, output);
}

void rounded_convolution(const Tensor& input, const Tensor& weight, const IntegerWeight& integers,
                         const Tensor* bias, const ConvolutionParameters& parameters,
                         const Epilogue& epilogue, const Tensor& output) {
  if (multiplies_integers() &&
      onednn::rounded_convolution(input, weight, integers, bias, parameters, epilogue, output)) {
    return;
  }
  convolution(rounded_and_back(input, integers.operand), weight, bias, parameters, epilogue,
              output);
}

bool expanded_depthwise(const Expanded& call, const Tensor& output) {
  return simd::expanded_depthwise(call, output);
}

void matrix_product(const Product& product, const Tensor& output) {
  if (simd::narrow_product(product, output)) return;
  const Tensor target = onednn::with_definite_strides(output);
  if (!onednn::is_row_major(target)) {
    const Tensor rows = contiguous(output);  // with its values: they may be part of the sum
    matrix_product(product, rows);
    return copy(rows, output);
  }
  const Tensor a = onednn::gathered(product.a);
  const bool packs =
      product.b.dimensions == 2 && product.b.storage->is_constant() && output.is_contiguous();
  const Tensor left = packs && !a.is_contiguous() ? contiguous(a) : a;
  const Tensor right = packs ? product.b : onednn::gathered(product.b);
  const Product dense{left, right, product.bias, product.alpha, product.beta, product.epilogue};
  if (packs && simd::dense_product(dense, target)) return;
  onednn::finish(product.epilogue, target, product.beta == 0, [&](const Epilogue& epilogue) {
    const Product p{left, right, product.bias, product.alpha, product.beta, epilogue};
    packs ? onednn::inner_product(p, target) : onednn::matmul(p, target);
  });
}

void rounded_product(const Product& product, const IntegerWeight& integers, const Tensor& output) {
  if (multiplies_integers()) return onednn::rounded_product(product, integers, output);
  const Tensor a = rounded_and_back(product.a, integers.operand);
  matrix_product({a, product.b, product.bias, product.alpha, product.beta, product.epilogue},
                 output);
}

void small_product(const SmallProduct& product) { onednn::small_product(product); }

float maximum(const float* values, int64_t n) { return simd::kernels().maximum(values, n); }

float exponentials(float* values, int64_t n, float highest) {
  return simd::kernels().exponentials(values, n, highest);
}

std::string library_version() { return onednn::library_version(); }

}  // namespace menagerie::kernels
